"""A new project: in every language an echo that needs nothing."""

from __future__ import annotations

import pytest

from palyra.skills.capabilities import Capabilities, Quotas, grants_of
from palyra.skills.findings import SkillRefused
from palyra.skills.languages import LANGUAGES, Language
from palyra.skills.project import parse_project
from palyra.skills.recorded import parse_cases
from palyra.skills.scaffold import fill
from tests.authoring import new_project


@pytest.mark.parametrize("language", Language)
def test_a_new_project_is_an_echo_without_capabilities_in_every_language(language: Language) -> None:
    files = new_project("acme.echo", language)
    project = parse_project({path: text.encode() for path, text in files.items()})
    manifest = project.manifest
    tool = manifest.tools[0]
    assert (manifest.skill_id, manifest.version, manifest.publisher) == ("acme.echo", "0.1.0", "acme")
    assert [one.id for one in manifest.tools] == ["acme.echo"]
    assert (tool.input_schema, tool.output_schema) == ({"type": "object"}, {"type": "object"})
    facts = LANGUAGES[language]
    quotas = Quotas(fuel_budget=facts.fuel, max_memory_bytes=facts.memory_bytes)
    assert manifest.capabilities == Capabilities(quotas=quotas)
    assert grants_of(manifest.capabilities) == grants_of(Capabilities())
    assert manifest.review_required is False
    assert project.sources == (("modules/main.wasm", facts.source),)
    assert project.artifact_name == "acme.echo-0.1.0.palyra-skill"
    assert {case.name for case in parse_cases(project.files, manifest)} == {"empty", "object"}


@pytest.mark.parametrize("language", Language)
def test_no_hole_of_a_template_stays_open(language: Language) -> None:
    assert [path for path, text in new_project("acme.tools.echo-2", language).items() if "{{" in text] == []


@pytest.mark.parametrize(
    "skill_id",
    [
        "echo",
        "acme.",
        ".echo",
        "acme .echo",
        "Acme.echo",
        "acme.echo/../..",
        "acme.e\ncho",
        'acme."x"',
        "palyra.echo",
        "",
    ],
)
def test_an_id_that_is_none_never_becomes_a_folder(skill_id: str) -> None:
    with pytest.raises(SkillRefused):
        new_project(skill_id, Language.WAT)


def test_a_hole_nobody_fills_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill("{{nobody}}", {})
