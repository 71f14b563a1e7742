"""A project's two files, read strictly."""

from __future__ import annotations

import pytest

from palyra.skills.languages import LANGUAGES as FACTS
from palyra.skills.languages import Language, command_of
from palyra.skills.project import ProjectError, parse_project
from tests.authoring import new_project


def files(**changed: str | None) -> dict[str, bytes]:
    """A new project's, with some of its files changed or gone."""
    found: dict[str, str | None] = {**new_project("acme.echo", Language.WAT), **changed}
    return {path: text.encode() for path, text in found.items() if text is not None}


RECIPE = 'language = "wat"\n[modules]\n"modules/main.wasm" = "src/main.wat"\n'


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"skill.toml": None}, "There is no skill.toml here"),
        ({"build.toml": None}, "There is no build.toml here"),
        ({"build.toml": "language ="}, "build.toml is not TOML"),
        ({"build.toml": RECIPE.replace("wat", "cobol", 1)}, "names no language"),
        ({"build.toml": "shell = 'rm'\n" + RECIPE}, "unknown key 'shell'"),
        ({"build.toml": RECIPE.replace("src/main.wat", "../../etc/passwd")}, "is not a path in the project"),
        ({"build.toml": RECIPE.replace("src/main.wat", "/etc/passwd")}, "is not a path in the project"),
        (
            {"build.toml": RECIPE.replace("src/main.wat", "src/gone.wat")},
            "src/gone.wat of modules/main.wasm is missing",
        ),
        ({"build.toml": RECIPE.replace("modules/main.wasm", "modules/other.wasm")}, "not modules/main.wasm"),
        ({"build.toml": RECIPE + '"modules/more.wasm" = "src/main.wat"\n'}, "modules/more.wasm"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_sentence(changed: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(ProjectError) as error:
        parse_project(files(**changed))
    assert sentence in error.value.detail


def test_digests_are_written_by_building_alone() -> None:
    text = (
        new_project("acme.echo", Language.WAT)["skill.toml"]
        + f'\n[integrity.files]\n"modules/main.wasm" = "{"0" * 64}"\n'
    )
    with pytest.raises(ProjectError, match="integrity"):
        parse_project(files(**{"skill.toml": text}))


@pytest.mark.parametrize("language", [language for language in Language if FACTS[language].recipes])
def test_a_compilers_words_name_no_place_of_the_machine(language: Language) -> None:
    for recipe in FACTS[language].recipes:
        found = {name: f"/tools/{name}" for name in recipe.programs}
        argv, made = command_of(recipe, source="src/main.x", target="out.wasm", crate="acme_echo", found=found)
        assert argv[0] == f"/tools/{recipe.programs[0]}"
        assert [word for word in argv[1:] if word.startswith("/") and not word.startswith("/tools/")] == []
        assert made in ("out.wasm", ".out/wasm32-unknown-unknown/release/acme_echo.wasm")


@pytest.mark.parametrize(
    "cargo",
    ["", "[package", '[package]\nname = "../../x"\n', "[package]\nname = 1\n", "[lib]\nname = 'x'\n[[bad"],
    ids=["absent", "no TOML", "a path", "no text", "half"],
)
def test_a_crate_that_cannot_be_named_is_not_built(cargo: str) -> None:
    found = {
        path: text.encode() for path, text in {**new_project("acme.echo", Language.RUST), "Cargo.toml": cargo}.items()
    }
    with pytest.raises(ProjectError, match="A project in Rust makes one module"):
        parse_project(found)


def test_a_crates_module_is_called_as_its_cargo_toml_says() -> None:
    found = {path: text.encode() for path, text in new_project("acme.echo", Language.RUST).items()}
    assert parse_project(found).crate == "acme_echo"
    renamed = found | {"Cargo.toml": b'[package]\nname = "other-name"\n'}
    assert parse_project(renamed).crate == "other_name"
