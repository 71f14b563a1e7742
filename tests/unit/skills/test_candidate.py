"""A wish made into a project: the same files each time, the least capabilities, and nothing a model could widen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palyra.skills.candidate import candidate_files
from palyra.skills.capabilities import SecretScope
from palyra.skills.intent import Shape, Wish, parse_wish
from palyra.skills.languages import Language
from palyra.skills.model_answer import MAX_ANSWER_BYTES, chat_request, parse_chat
from palyra.skills.project import Project, ProjectError, parse_project
from palyra.skills.recorded import parse_cases
from palyra.skills.templates.load import read_templates
from tests.promises import promise

TEMPLATES = {shape.value: read_templates("builder")[f"{shape.value}.wat"] for shape in Shape}
ID = "01J00000000000000000000000"
ANSWER: dict[str, Any] = {
    "language": "assemblyscript",
    "code": "export function run(): i32 { return 0; }",
    "input_schema": {"type": "object"},
    "output_schema": {"type": "object"},
    "tests": {"one": {"input": {}, "expect": {"exit_code": 0}}},
}


def project(files: dict[str, str]) -> Project:
    return parse_project({path: text.encode() for path, text in files.items()})


def made(wish: Wish) -> Project:
    return project(candidate_files(wish, ID, templates=TEMPLATES))


def answered(**changed: Any) -> bytes:
    content = json.dumps({key: value for key, value in {**ANSWER, **changed}.items() if value is not None})
    return json.dumps({"choices": [{"message": {"content": content}}]}).encode()


@promise("skills.candidate-wishes")
@pytest.mark.parametrize(
    ("text", "hosts", "roots", "secrets"),
    [
        ("count words", (), (), ()),
        ("remember a note", (), ("kept",), ()),
        ("get api.example.com/v1", ("api.example.com",), (), ()),
        ("get api.example.com/v1 with a token and keep it", ("api.example.com",), ("kept",),
         (SecretScope(scope="skill:acme.made", key_names=("token",)),)),
    ],
)  # fmt: skip
def test_a_candidate_asks_for_exactly_what_the_wish_names(
    text: str, hosts: tuple[str, ...], roots: tuple[str, ...], secrets: tuple[SecretScope, ...]
) -> None:
    found = made(parse_wish(text, skill_id="acme.made"))
    asked = found.manifest.capabilities
    assert (asked.http_egress_allowlist, asked.write_roots, asked.secrets) == (hosts, roots, secrets)
    assert (asked.read_roots, asked.channels, asked.device_capabilities, asked.wildcard_opt_in) == ((), (), (), ())
    assert found.manifest.review_required is True
    assert found.manifest.tools[0].requires_approval is bool(secrets)
    assert found.manifest.builder is not None
    assert (found.manifest.builder.source, found.manifest.builder.candidate) == ("template", ID)
    assert parse_cases(found.files, found.manifest)
    review = found.files["REVIEW.md"].decode()
    assert all(host in review for host in hosts)
    assert "- [ ] The code was read" in review


def test_the_same_wish_gives_the_same_files() -> None:
    wish = parse_wish("keep a copy of https://news.example.org/today")
    assert candidate_files(wish, ID, templates=TEMPLATES) == candidate_files(wish, ID, templates=TEMPLATES)


def test_quotes_and_signs_in_a_wish_stay_text() -> None:
    text = 'say """hi""" \\ [[entrypoints.tools]] ${x} {{request}} "]'
    found = made(parse_wish(text, skill_id="acme.made"))
    assert f"Wish: {text}\n" in found.files["REVIEW.md"].decode()
    assert len(found.manifest.tools) == 1


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("delete old branches and mail the team", "Returns the object it was given."),
        ("get https://api.example.com/v1", "Fetches a page of its one host and returns status, headers and body."),
    ],
)
def test_a_template_is_described_by_what_it_does_and_not_by_what_was_wished(text: str, does: str) -> None:
    """An agent called a tool that "deletes old branches" and got its own input back as a success."""
    manifest = made(parse_wish(text, skill_id="acme.made")).manifest
    assert [tool.description for tool in manifest.tools] == [does]
    assert manifest.operator.summary == does


def test_a_path_in_a_wish_is_a_prefix_and_no_pattern() -> None:
    found = made(parse_wish("get https://api.example.com/v1.0/a+b", skill_id="acme.made"))
    pattern = found.manifest.tools[0].input_schema["properties"]["path"]["pattern"]
    assert pattern == r"^/v1\.0/a\+b[A-Za-z0-9._~/?&=%+-]*$"


@promise("skills.candidate-wishes")
def test_a_model_fills_in_code_tests_and_schemas_and_nothing_else() -> None:
    wish = parse_wish("get api.example.com", skill_id="acme.made")
    written = parse_chat(answered(), "some-model")
    found = project(candidate_files(wish, ID, templates=TEMPLATES, written=written))
    assert found.language is Language.ASSEMBLYSCRIPT
    assert found.files["src/main.ts"] == b"export function run(): i32 { return 0; }\n"
    assert found.manifest.capabilities.http_egress_allowlist == ("api.example.com",)
    assert found.manifest.builder is not None
    assert (found.manifest.builder.source, found.manifest.builder.model) == ("model", "some-model")
    assert [case.name for case in parse_cases(found.files, found.manifest)] == ["one"]


@promise("skills.candidate-wishes")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": "Sure! Here is the code."}}]}',
        answered(capabilities={"http_egress_allowlist": ["evil.example"]}),
        answered(skill_id="palyra.core"),
        answered(code=None),
        answered(code=""),
        answered(code="a\0b"),
        answered(code="x" * 200_000),
        answered(code=["list"]),
        answered(language="bash"),
        answered(tests={}),
        answered(tests={"../../x": {"input": {}, "expect": {"exit_code": 0}}}),
        answered(tests=[1]),
        answered(input_schema={"type": "string"}),
        answered(input_schema={"type": "object", "$ref": "https://evil.example/schema"}),
        answered(output_schema={"type": "nonsense"}),
        b"x" * (MAX_ANSWER_BYTES + 1),
        b"[" * 100_000,
    ],
)
def test_an_answer_of_any_other_form_is_refused_whole(body: bytes) -> None:
    with pytest.raises(ProjectError, match="The model's answer cannot be used"):
        parse_chat(body, "some-model")


def test_an_answer_in_a_fence_is_read() -> None:
    content = f"```json\n{json.dumps(ANSWER)}\n```"
    assert parse_chat(json.dumps({"choices": [{"message": {"content": content}}]}).encode(), "m").code


def test_a_model_is_told_the_wish_and_the_interface_and_no_more() -> None:
    asked = chat_request(parse_wish("get api.example.com"), "some-model", sdk="SDK")
    assert set(asked) == {"model", "temperature", "response_format", "messages"}
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert asked["messages"][1]["content"] == "get api.example.com"
