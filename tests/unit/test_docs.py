"""What the documents say is so: generated pages, links, names, tables, and the policies and settings they show."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import reference
import reference_bench
from palyra.attest import FIELDS
from palyra.config.schema import parse_config
from palyra.errors import Reason
from palyra.model.reasons import REASONS
from palyra.policy.request import ATTRIBUTES
from palyra.policy.store import POSTURES, load_posture

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
PAGES = sorted({*PROJECT.glob("*.md"), *DOCS.rglob("*.md")})
CEDAR_TYPES = {str: "String", bool: "Bool", int: "Long"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.(?:py|json))(?:::(test_\w+))?`")
PROMISE = re.compile(r"`([a-z-]+\.[a-z0-9-]+)`")
SOURCE = re.compile(r"`((?:src|tools|bench|docs)/[\w./-]+)`")


def read(page: str | Path) -> str:
    return (PROJECT / page).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    return FENCE.sub("", read(page))


def fences(page: str, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(read(page)) if kind == language]


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """The cells of the first table on the page whose first row begins with this one."""
    lines = iter(read(page).splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            break
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]


@cache
def anchors(page: Path) -> frozenset[str]:
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles)


@cache
def functions_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


# ── generated pages ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_generated_page_is_what_make_docs_would_write(page: str) -> None:
    assert read(page) == reference.make_page(page)


def test_the_check_fails_and_names_the_page_that_drifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for page in reference.PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text(reference.make_page(page), encoding="utf-8")
    monkeypatch.setattr(reference, "PROJECT", tmp_path)
    assert reference.main(["--check"]) == 0
    (tmp_path / "docs/reference/reasons.md").write_text("something else", encoding="utf-8")
    (tmp_path / "docs/guarantees.md").unlink()
    assert reference.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "  ✗ docs/reference/reasons.md is out of date: make docs",
        "  ✗ docs/guarantees.md is out of date: make docs",
    ]


def test_every_reason_has_a_meaning_a_remedy_and_a_row() -> None:
    assert list(REASONS) == list(Reason)
    assert all(page.meaning and page.remedy for page in REASONS.values())
    assert [row[0] for row in rows("docs/reference/reasons.md", "reason")] == [reason.value for reason in Reason]


def test_every_guarantee_that_is_claimed_is_attacked() -> None:
    unattacked = [row[0] for row in rows("docs/guarantees.md", "guarantee") if row[-1] == "–"]
    unclaimed = [row[0] for row in rows("docs/guarantees.md", "guarantee") if set(row[2:-1]) == {"not claimed"}]
    assert unattacked == unclaimed


def test_the_threat_model_and_the_list_of_promises_name_the_same_ids() -> None:
    promises = tomllib.loads(read("docs/security/promises.toml"))
    table = read("docs/threat-model.md").partition("| attack | barrier |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {line: PROMISE.findall(line.rstrip("| ").rpartition(" | ")[2]) for line in table}
    assert [line for line, ids in named.items() if not ids and not line.startswith("| **")] == []
    known = {name for ids in named.values() for name in ids}
    assert known - promises.keys() == set()
    assert {name for name, promise in promises.items() if promise["source"] == "threat model"} - known == set()


# ── pages by hand ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_test_and_file_that_a_page_names_exists(page: Path) -> None:
    text = prose(page)
    named = [(PROJECT / file, test) for file, test in TEST.findall(text)]
    missing = [file for file, _ in named if not file.is_file()]
    missing += [test for file, test in named if test and file.is_file() and test not in functions_in(file)]
    missing += [name for name in SOURCE.findall(text) if not (PROJECT / name).exists()]
    assert missing == []


def test_nothing_tells_to_install_from_an_index_where_nothing_is_published() -> None:
    files = [*PAGES, *(PROJECT / "src").rglob("*.py"), *(PROJECT / "examples").rglob("*.py")]
    wrong = re.compile(r"(?:pipx?|uv tool|uv pip) install (?:-\S+ )*['\"]?palyra\b|[Ii]nstall `?palyra\[")
    assert [str(file) for file in files if wrong.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("row", [*rows("docs/reference/glossary.md", "name")], ids=lambda row: row[0])
def test_every_name_in_the_glossary_exists_with_its_file_and_test(row: list[str]) -> None:
    _, path, file, test = row
    module = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    assert path.startswith(f"{module}.")
    found: object = import_module(module)
    for name in path.removeprefix(f"{module}.").split("."):
        found = getattr(found, name)
    assert (PROJECT / test).is_file()


def test_the_index_of_decisions_lists_every_one() -> None:
    files = sorted(path.name for path in (DOCS / "adr").glob("0*.md"))
    assert LINK.findall(read("docs/adr/README.md")) == files
    for file in files:
        text = read(f"docs/adr/{file}")
        assert [part for part in ("Question", "Options", "Choice", "Cost") if f"**{part}.**" not in text] == []


def test_the_index_names_every_page() -> None:
    known = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(read("docs/README.md"))}
    pages = {page for page in PAGES if page.is_relative_to(DOCS) and page.parent.name not in ("adr", "bench")}
    assert pages - known - {DOCS / "README.md"} == set()


def test_the_specified_context_is_the_one_policies_get() -> None:
    said = {name: kind for name, kind, *_ in rows("docs/spec/policy.md", "attribute")}
    assert said == {name: CEDAR_TYPES[kind] for name, kind in ATTRIBUTES.items()}


def test_the_specified_attestation_has_the_fields_of_the_code() -> None:
    assert sorted(row[0] for row in rows("docs/spec/attestation.md", "field")) == sorted(FIELDS)


def test_the_specified_postures_are_made_of_the_files_of_the_code() -> None:
    said = {row[0]: tuple(re.findall(r"[\w/]+\.cedar", row[2])) for row in rows("docs/spec/policy.md", "posture")}
    assert said == dict(POSTURES)


# ── what the pages show works ────────────────────────────────────────────────


@pytest.mark.parametrize("text", fences("docs/guide/first-policy.md", "cedar"), ids=lambda text: text.splitlines()[0])
@pytest.mark.parametrize("posture", POSTURES)
def test_a_policy_shown_in_the_guide_loads_beside_every_posture(text: str, posture: str) -> None:
    assert load_posture(posture, {"local.cedar": text}).name == f"{posture}+local"


def test_the_examples_shown_in_the_guide_hold() -> None:
    policy, *_ = fences("docs/guide/first-policy.md", "cedar")
    (examples,) = fences("docs/guide/first-policy.md", "toml")
    assert load_posture("standard", {"local.cedar": policy, "examples.toml": examples}).examples == examples


def test_the_examples_shown_in_the_specification_hold() -> None:
    policy, *_ = fences("docs/guide/first-policy.md", "cedar")
    (examples,) = fences("docs/spec/policy.md", "toml")
    assert load_posture("standard", {"local.cedar": policy, "examples.toml": examples}).examples == examples


def test_the_exception_shown_in_the_guide_lets_the_build_agent_run_python_and_nobody_else() -> None:
    _, exception, *_ = fences("docs/guide/first-policy.md", "cedar")
    examples = "\n".join(
        f'[[example]]\nname = "{at}"\nprincipal = "{who}"\nexpect = "{expect}"\nfacts = {{ {facts} }}\n'
        for at, (who, expect, facts) in enumerate(
            [
                ("agent:build", "allow", 'program = "python", interpreter = true'),
                ("agent:build", "deny", 'program = "bash", interpreter = true'),
                ("agent:build", "deny", 'program = "python", interpreter = true, tier = "B"'),
                ("agent:other", "deny", 'program = "python", interpreter = true'),
                ("user:alice", "allow", 'program = "bash", interpreter = true, granted_interpreters = true'),
            ]
        )
    )
    load_posture("standard", {"local.cedar": exception, "examples.toml": examples})


@pytest.mark.parametrize("text", fences("docs/guide/embed-in-python.md", "python"))
def test_the_python_shown_in_the_guide_is_python_and_imports_what_exists(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("palyra"):
            module = import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_configuration_shown_is_one(page: Path) -> None:
    for text in fences(str(page.relative_to(PROJECT)), "toml"):
        if "[[example]]" not in text:
            parse_config(tomllib.loads(text))


def test_every_aim_that_the_benchmarks_miss_is_explained_with_what_comes_next() -> None:
    text = read("docs/benchmarks.md")
    assert reference_bench.UNKNOWN[0] not in text
    assert text.count("instead of") == text.count("**missed**")
