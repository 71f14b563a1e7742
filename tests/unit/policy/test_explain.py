"""An explanation names what decided, what came near, and only changes that were tried and helped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palyra.policy.bundle import PolicyBundle, load_bundle
from palyra.policy.clauses import nearest_permits
from palyra.policy.decide import decide
from palyra.policy.examples import ordinary_request
from palyra.policy.explain import Change, Explanation, explain, explanation_json
from palyra.policy.request import Request
from palyra.policy.store import load_posture, read_posture

STANDARD, DEVELOPER, LOCKED = (load_posture(name) for name in ("standard", "developer", "locked"))
SCHEMA = read_posture("standard")["schema.cedarschema"]


def load(text: str) -> PolicyBundle:
    return load_bundle("test", {"a.cedar": text, "schema.cedarschema": SCHEMA})


def explained(bundle: PolicyBundle, request: Request, **postures: PolicyBundle) -> Explanation:
    return explain(bundle, request, decide(bundle, request), postures=postures)


def changes(explanation: Explanation, *kinds: str) -> list[str]:
    return [change.text for change in explanation.changes if change.kind in kinds]


def test_a_forbid_is_named_with_its_place():
    explanation = explained(STANDARD, ordinary_request(program="bash", interpreter=True))
    assert explanation.kind == "forbid"
    assert [(p.id, p.file, p.code) for p in explanation.determining] == [
        ("guard.10-interpreter", "standard/guards.cedar", "INTERPRETER_DENIED")
    ]
    text = STANDARD.policies["standard/guards.cedar"].splitlines()
    assert text[explanation.determining[0].line - 1] == '@id("guard.10-interpreter")'


def test_a_refused_interpreter_is_helped_by_its_flag_and_by_the_posture():
    request = ordinary_request(program="bash", interpreter=True, listed=False)
    explanation = explained(STANDARD, request, developer=DEVELOPER)
    assert changes(explanation, "flag", "posture", "approval", "tier", "egress") == [
        "--allow-interpreters",
        'posture = "developer"',
    ]


def test_a_build_tool_needs_both_flags():
    explanation = explained(STANDARD, ordinary_request(program="make", runs_code=True, listed=False))
    assert changes(explanation, "flag") == ["--allow-interpreters --allow make"]


@pytest.mark.parametrize(
    ("facts", "change"),
    [
        ({"program": "nmap", "listed": False}, Change(kind="flag", text="--allow nmap", effect="allow")),
        ({"egress": "none"}, Change(kind="approval", text="an approval by a person", effect="allow")),
        (
            {"hosts_denied": 1},
            Change(kind="flag", text="--allow-host HOST, for each host it names", effect="allow"),
        ),
    ],
)
def test_the_smallest_change_comes_first(facts: dict[str, Any], change: Change):
    assert explained(STANDARD, ordinary_request(**facts)).changes[0] == change


def test_an_asking_policy_is_explained_as_such():
    explanation = explained(STANDARD, ordinary_request(tier="B"))
    assert explanation.kind == "ask"
    assert [info.id for info in explanation.determining] == ["guard.50-tier-b"]
    assert changes(explanation, "tier") == ['tier C (leave out --tier, or set tier = "auto")']


def test_what_is_allowed_needs_no_change():
    explanation = explained(STANDARD, ordinary_request())
    assert (explanation.kind, explanation.changes, explanation.nearest) == ("allowed", (), ())


@pytest.mark.parametrize("facts", [{"agent_writable": True}, {"found": False}, {"found": False, "listed": False}])
def test_nothing_is_advised_against_a_wall(facts: dict[str, Any]):
    assert explained(STANDARD, ordinary_request(**facts)).changes == ()


def test_an_error_is_an_error_and_nothing_is_advised():
    bundle = load(
        '@id("p") permit (principal, action, resource);'
        '@id("e") forbid (principal, action, resource) when { context.hour * 9223372036854775807 > 0 };'
    )
    explanation = explained(bundle, ordinary_request())
    assert (explanation.kind, explanation.changes) == ("error", ())
    assert "overflow" in explanation.error


def test_the_nearest_permit_names_its_failing_clauses():
    bundle = load(
        """
        @id("near") permit (principal is Agent, action == Action::"tool::execute", resource in ToolGroup::"process")
        when { context.tier == "C" && context.hour < 5 && context.program like "l*" }
        unless { context.sensitive || context.device == "" };
        @id("other") permit (principal == User::"bob", action == Action::"tool::execute", resource);
        @id("list") permit (principal, action == Action::"tool::list", resource);
        """
    )
    nearest = nearest_permits(bundle, ordinary_request(program="ls", hour=12))
    assert [(near.policy.id, near.failed) for near in nearest] == [
        ("near", ("(context.hour) < 5", '!((context.device) == "")')),
        ("other", ('principal == User::"bob"',)),
    ]


def test_a_clause_that_cannot_be_evaluated_counts_as_failing():
    bundle = load(
        '@id("p") permit (principal, action, resource)'
        ' when { context.tier == "C" && context.hour * 9223372036854775807 > 0 };'
    )
    (near,) = nearest_permits(bundle, ordinary_request())
    assert near.failed == ("((context.hour) * 9223372036854775807) > 0",)


def test_of_a_refused_call_the_one_line_choices_come_first():
    request = ordinary_request(program="wget", listed=False, programs="[]", input_sha256="0" * 64)
    found = explain(STANDARD, request, decide(STANDARD, request), call_id="CALL")
    assert [(c.kind, c.text, c.scope) for c in found.changes][:4] == [
        ("exception", f"palyra policy allow CALL --for {scope}", scope)
        for scope in ("call", "program", "run", "always")
    ]
    assert changes(explained(STANDARD, request), "exception") == [], "of a call that was not made there is none"


def test_no_explanation_offers_the_text_of_a_policy():
    for request in (ordinary_request(program="make", runs_code=True, listed=False, programs="[]"), ordinary_request()):
        for bundle in (STANDARD, LOCKED):
            found = explain(bundle, request, decide(bundle, request), call_id="CALL")
            assert not any("forbid" in c.text or "permit (" in c.text for c in found.changes)


def test_an_explanation_is_plain_json():
    explanation = explained(LOCKED, ordinary_request(), standard=STANDARD)
    value = explanation_json(explanation)
    assert json.loads(json.dumps(value)) == value
    assert (value["kind"], value["effect"], value["reason"]) == ("nothing_permits", "deny", "POLICY_DENIED")
    assert value["changes"][0] == {"kind": "posture", "text": 'posture = "standard"', "effect": "allow", "scope": None}
    assert value["policy_sha256"] == LOCKED.digest
    assert value["request"] == ordinary_request().as_json()
