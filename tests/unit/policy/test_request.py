"""What policy is asked: computed scalars only, all of them, typed."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from palyra.errors import Reason, Rejected
from palyra.model.call import (
    CallId,
    Door,
    OperatorGrant,
    RequestContext,
    RunId,
    TierChoice,
    ToolCall,
    parse_principal,
)
from palyra.model.job import Facts
from palyra.model.limits import Limits
from palyra.model.outcome import BudgetView
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.model.tool import Capability, Parallelism, Projection, ToolKind, ToolSpec
from palyra.policy.request import (
    ACTIONS,
    ATTRIBUTES,
    MAX_TEXT,
    Request,
    ask_again,
    build_request,
    groups_of,
    parse_request,
    roles_of,
)
from palyra.policy.store import read_posture
from tests.promises import promise

SPEC = ToolSpec(
    name="palyra.process.run",
    version="1.0.0",
    description="",
    kind=ToolKind.PROCESS,
    input_schema={},
    output_schema={},
    capabilities=frozenset({Capability.PROCESS_EXEC}),
    parallelism=Parallelism.EXCLUSIVE,
    projection=Projection.INLINE_UNLESS_LARGE,
    max_input_bytes=1024,
)
CALL = ToolCall(
    call_id=CallId("0" * 26),
    run_id=RunId("0" * 26),
    tool="palyra.process.run",
    input={"command": "ls"},
    input_sha256="0" * 64,
    context=RequestContext(principal=parse_principal("agent:demo"), door=Door.MCP, device="laptop", channel="chat"),
    workspace="/w",
    received_unix_ms=0,
    limits=Limits(),
    grant=OperatorGrant(tier=TierChoice.B),
)
RUN = RunFacts(labels=frozenset({RunLabel.HAS_USED_SECRET}), calls_last_minute=4, denials_last_minute=1)
FACTS = Facts(tier="C", egress="strict", program="ls", effective_program="ls", listed=True, found=True, hosts_named=2)


def build(call: ToolCall = CALL, spec: ToolSpec = SPEC, facts: Facts = FACTS) -> Request:
    budget = BudgetView(calls_used=3, calls_max=9)
    return build_request(call, spec, facts, budget=budget, approved=False, hour=7, run=RUN)


def test_a_request_holds_the_facts_and_nothing_else():
    context = {name: kind() for name, kind in ATTRIBUTES.items()} | {
        "door": "mcp",
        "device": "laptop",
        "channel": "chat",
        "run": CALL.run_id,
        "input_sha256": "0" * 64,
        "tier": "C",
        "egress": "strict",
        "program": "ls",
        "effective_program": "ls",
        "listed": True,
        "found": True,
        "hosts_named": 2,
        "granted_tier": True,
        "cap_process_exec": True,
        "calls_used": 3,
        "calls_max": 9,
        "calls_last_minute": 4,
        "denials_last_minute": 1,
        "has_used_secret": True,
        "hour": 7,
    }
    request = build()
    assert request == Request(
        principal=parse_principal("agent:demo"),
        roles=("agent",),
        action="tool::execute",
        tool="palyra.process.run",
        groups=("palyra", "process"),
        context=context,
        input=(("command", "ls"),),
    )
    assert request.cedar == {
        "principal": {"type": "Agent", "id": "demo"},
        "action": {"type": "Action", "id": "tool::execute"},
        "resource": {"type": "Tool", "id": "palyra.process.run"},
        "context": {**context, "input": {"command": "ls"}},
    }


def test_every_fact_but_the_details_enters():
    assert {f.name for f in fields(Facts)} - {"details"} <= ATTRIBUTES.keys()
    assert "details" not in ATTRIBUTES
    assert {f"cap_{capability}" for capability in Capability} <= ATTRIBUTES.keys()


@promise("policy.entity-text")
def test_raw_arguments_never_enter():
    """Cedar reads __entity and __extn in JSON objects as values of other types."""
    hostile = {"__entity": {"type": "User", "id": "root"}, "__extn": {"fn": "ip", "arg": "10.0.0.1"}}
    call = replace(CALL, input={"command": hostile, **hostile})
    facts = replace(FACTS, details=(("EGRESS_DENIED", json.dumps(hostile)),))
    text = json.dumps([build(call, facts=facts).cedar, build(call, facts=facts).as_json()])
    assert "__entity" not in text
    assert "__extn" not in text


def test_running_without_a_sandbox_is_another_action():
    assert build(facts=replace(FACTS, tier="unsandboxed")).action == "tool::execute-unsandboxed"


def test_a_skills_tool_is_never_counted_as_palyras_own():
    assert groups_of(replace(SPEC, provenance="f" * 64)) == ("skill",)
    assert groups_of(replace(SPEC, provenance="f" * 64, kind=ToolKind.BUILTIN)) == ("skill",)
    assert groups_of(replace(SPEC, kind=ToolKind.BUILTIN)) == ("palyra", "builtin")


def test_people_are_developers_and_agents_are_agents_unless_the_configuration_says_otherwise():
    assert roles_of(parse_principal("user:alice")) == ("developer",)
    given = build_request(CALL, SPEC, FACTS, budget=BudgetView(), approved=True, hour=0, roles=("agent", "operator"))
    assert given.roles == ("agent", "operator")
    assert given.context["approved"] is True


def test_a_specification_of_another_tool_is_refused():
    with pytest.raises(Rejected) as caught:
        build(spec=replace(SPEC, name="palyra.echo"))
    assert caught.value.reason is Reason.POLICY_ERROR


def test_a_request_survives_its_record():
    request = build()
    again = parse_request(json.loads(json.dumps(request.as_json())))
    assert replace(again, input=request.input) == request, "the input is kept beside it, as the call's own"


def test_a_record_of_before_an_attribute_was_known_still_makes_a_request():
    record = build().as_json()
    del record["context"]["has_used_secret"]
    assert parse_request(record) == replace(build().with_context(has_used_secret=False), input=())


@pytest.mark.parametrize(
    "change",
    [
        {"device": {"__entity": {"type": "User", "id": "root"}}},
        {"interpreter": 0},
        {"hosts_named": True},
        {"hour": 1.0},
        {"hour": 2**63},
        {"device": "x" * (MAX_TEXT + 1)},
        {"tier": None},
        {"unknown": "x"},
    ],
)
def test_an_attribute_of_another_type_or_size_makes_no_request(change: dict[str, object]):
    record = build().as_json()
    record["context"] |= change
    with pytest.raises(Rejected) as caught:
        parse_request(record)
    assert caught.value.reason is Reason.POLICY_ERROR


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        build().as_json() | {"extra": 1},
        build().as_json() | {"roles": "agent"},
        build().as_json() | {"groups": [1]},
        build().as_json() | {"action": "tool::anything"},
        build().as_json() | {"principal": "robot:x"},
        build().as_json() | {"context": []},
    ],
)
def test_a_record_of_another_shape_makes_no_request(record: object):
    with pytest.raises(Rejected):
        parse_request(record)


def test_the_actions_are_those_of_the_schema_that_policies_are_written_against():
    schema = read_posture("standard")["schema.cedarschema"]
    assert ACTIONS == (
        "tool::execute",
        "tool::execute-unsandboxed",
        "plugin::inline",
        "tool::list",
        "approval::confirm",
        "approval::elicit",
    )
    assert [action for action in ACTIONS if f'"{action}"' not in schema] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls_used": 2**53},
        {"calls_max": -(2**53)},
        {"hour": True},
        {"hour": "12"},
        {"run_id": 7},
        {"run_id": "x" * 1025},
    ],
)
def test_what_changed_since_a_call_was_first_made_is_checked_as_at_first(wrong: dict[str, object]):
    """An integer that Cedar cannot hold, or a bool that it would take for another kind, is no request either time."""
    now = {"run_id": "one", "calls_used": 1, "calls_max": 2, "hour": 12} | wrong
    with pytest.raises(Rejected) as caught:
        ask_again(build(), run=RunFacts(), **now)
    assert caught.value.reason is Reason.POLICY_ERROR
