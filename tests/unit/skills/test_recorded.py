"""Recorded inputs: read strictly, compared exactly, shown as a difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palyra.skills.languages import Language
from palyra.skills.project import ProjectError, parse_project
from palyra.skills.recorded import Case, Exchange, judge, parse_cases
from tests.authoring import new_project

MANIFEST = parse_project(
    {path: text.encode() for path, text in new_project("acme.echo", Language.WAT).items()}
).manifest


def cases(**written: Any) -> tuple[Case, ...]:
    return parse_cases({f"tests/{name}.json": json.dumps(case).encode() for name, case in written.items()}, MANIFEST)


def test_a_case_brings_its_whole_world_along() -> None:
    exchange = {"host": "api.example.com", "request": {"path": "/"}, "answer": {"body": "hi"}}
    (case,) = cases(
        one={
            "input": {"a": 1},
            "expect": {"result": {}},
            "http": [exchange],
            "storage": {"cache/x": "1"},
            "storage_after": {"cache/x": "2"},
        }
    )
    assert case == Case(
        name="one",
        tool="acme.echo",
        input={"a": 1},
        expect={"storage_after": {"cache/x": "2"}, "result": {}},
        http=(
            Exchange(
                host="api.example.com", request={"path": "/"}, answer={"status": 200, "headers": [], "body": "hi"}
            ),
        ),
        storage={"cache/x": "1"},
    )


@pytest.mark.parametrize(
    "case",
    [
        {"input": {}},
        {"expect": {"result": 1}},
        {"input": {}, "expect": {}},
        {"input": {}, "expect": {"output": 1}},
        {"input": {}, "expect": {"result": 1}, "unknown": 1},
        {"input": {}, "expect": {"result": 1}, "tool": "acme.other"},
        {"input": {}, "expect": {"result": 1}, "storage": {"a": 1}},
        {"input": {}, "expect": {"result": 1}, "http": [{"host": "x", "request": {}}]},
        [],
        "text",
    ],
)
def test_a_case_that_is_none_is_refused(case: Any) -> None:
    with pytest.raises(ProjectError):
        cases(bad=case)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ProjectError, match=r"tests/x\.json is not JSON"):
        parse_cases({"tests/x.json": b"{"}, MANIFEST)


def test_only_what_is_expected_is_compared_and_exactly() -> None:
    (case,) = cases(one={"input": {}, "expect": {"exit_code": 0, "result": {"n": 1}}})
    assert judge(case, {"exit_code": 0, "result": {"n": 1}, "message": "anything"}).passed
    for got in ({"n": 1.0}, {"n": True}, {"n": 1, "m": 2}, None):
        assert not judge(case, {"exit_code": 0, "result": got}).passed, got


def test_a_difference_shows_both_sides_and_why_it_ended() -> None:
    (case,) = cases(one={"input": {}, "expect": {"result": {"n": 1}}})
    verdict = judge(case, {"status": "out_of_fuel", "message": "The guest used up its fuel of 5.", "result": None})
    assert '-    "n": 1' in verdict.diff
    assert '+  "status": "out_of_fuel"' in verdict.diff
    assert "used up its fuel" in verdict.diff
