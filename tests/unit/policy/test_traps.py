"""The traps of the engine, each through a whole walk or load: a coded refusal, and a process that lives on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from palyra.attest import check_outcome
from palyra.config.schema import parse_config
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.outcome import Outcome, Status
from palyra.policy import request as request_module
from palyra.policy.bundle import PolicyBundle
from palyra.policy.scan import PolicyError
from palyra.policy.store import load_posture, try_in_child
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.testing import FakePolicies, fake_ports, fake_run

REGISTRY = make_registry(BUILTIN_TOOLS)


def call(bundle: PolicyBundle, tool: str, arguments: Any) -> tuple[Outcome, Any]:
    ports = fake_ports(policies=FakePolicies(bundle))
    outcome = asyncio.run(Engine(ports, REGISTRY).call(CallRequest(tool=tool, input=arguments, run=fake_run())))
    findings = check_outcome(outcome_json(outcome), ports.key.public)
    assert [f for f in findings if f.code != "RECEIPT"] == [], "every way out is attested"
    assert len(ports.journal.closings) == 1, "and journaled"
    return outcome, ports


@pytest.mark.parametrize(
    "forbid",
    [
        "when { context.hour * 9223372036854775807 * 2 > 0 || context.hour == 0 && 9223372036854775807 + 1 > 0 }",
        "when { 9223372036854775807 + context.calls_max > 0 }",
        "when { 9223372036854775807 + 1 > 0 }",
        "when { !context.sensitive && 9223372036854775807 + 1 > 0 && context.sensitive }",
        "unless { context.approved || -9223372036854775807 - context.calls_max > 0 }",
    ],
)
def test_an_erroring_forbid_refuses_the_call_with_policy_error(forbid: str):
    """Cedar skips it, so an allow beside it would mean nothing."""
    text = f'@id("local.broken") forbid (principal, action, resource) {forbid};'
    outcome, ports = call(load_posture("standard", {"a.cedar": text}), "palyra.echo", {})
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.POLICY_ERROR)
    assert "local.broken" in (outcome.message or "")
    assert ports.journal.closings[0].reason == "POLICY_ERROR"


ESCAPES: list[dict[str, Any]] = [
    {"__entity": {"type": "User", "id": "root"}},
    {"__extn": {"fn": "ip", "arg": "10.0.0.1"}},
    {"__expr": "principal"},
    {"context": {"approved": {"__entity": {"type": "Role", "id": "operator"}}}},
]


@pytest.mark.parametrize("arguments", ESCAPES)
def test_entity_and_extension_keys_in_arguments_stay_data(arguments: dict[str, Any]):
    """In every place an agent can put them: they change nothing for policy, and come back as they were sent."""
    text = '@id("local.roots") permit (principal == User::"root", action, resource);'
    refused, ports = call(load_posture("locked", {"a.cedar": text}), "palyra.echo", arguments)
    assert refused.reason is Reason.POLICY_DENIED
    outcome, ports = call(load_posture("standard"), "palyra.echo", arguments)
    assert (outcome.success, outcome.output) == (True, arguments)
    request = orjson.loads(ports.journal.openings[0].details)["request"]
    assert set(request["context"]) == set(request_module.ATTRIBUTES)
    assert all(isinstance(value, str | bool | int) for value in request["context"].values())


def test_an_escape_as_a_program_name_is_a_name():
    name = '{"__entity":{"type":"User","id":"root"}}'
    outcome, _ = call(load_posture("standard"), "palyra.process.run", {"command": name})
    assert outcome.reason is Reason.EXECUTABLE_DENIED


HEAD = "permit (principal, action, resource) when { "
NESTED = {
    "brackets": HEAD + "(" * 1000 + "true" + ")" * 1000 + " };",
    "nots": HEAD + "!" * 1000 + "true };",
    "ifs": HEAD + "if true then " * 1000 + "true" + " else true" * 1000 + " };",
    "records": HEAD + '{"a":' * 1000 + "1" + "}" * 1000 + " == 1 };",
    "chain": HEAD + " && ".join(["true"] * 1000) + " };",
    "attributes": "permit (principal, action, resource) when { context" + ".a" * 1000 + " };",
    "clauses": "permit (principal, action, resource) " + "when { true } " * 1000 + ";",
}


@pytest.mark.parametrize("kind", NESTED)
def test_a_thousand_levels_are_refused_before_the_parser_and_name_their_place(kind: str):
    text = '@id("ok") permit (principal, action, resource);\n@id("deep") ' + NESTED[kind].replace(" ", "\n")
    with pytest.raises(PolicyError, match=r"local/a.cedar|a\.cedar") as caught:
        load_posture("standard", {"a.cedar": text})
    assert caught.value.line > 1
    with pytest.raises(PolicyError):
        try_in_child("standard", {"a.cedar": text})


def test_ten_mebibytes_are_refused_at_once():
    big = '@id("p") permit (principal, action, resource);\n' * ((10 << 20) // 47 + 1)
    with pytest.raises(PolicyError, match="at most 1048576 bytes"):
        load_posture("standard", {"a.cedar": big[: 10 << 20]})


def test_ten_mebibytes_of_examples_are_refused_too():
    with pytest.raises(PolicyError, match="at most"):
        load_posture("standard", {"examples.toml": "#" * (10 << 20)})


def test_the_same_id_twice_is_refused_with_both_places():
    text = '@id("twice") permit (principal, action, resource);\n'
    with pytest.raises(PolicyError) as caught:
        load_posture("standard", {"a.cedar": text, "b.cedar": f"\n{text}"})
    assert (caught.value.file, caught.value.line, caught.value.policy) == ("local/b.cedar", 2, "twice")
    assert "local/a.cedar:1" in caught.value.detail


def test_an_unknown_principal_is_refused_with_policy_error():
    """Whatever the policies permit to everyone."""
    config = parse_config({"principals": {"known": ["agent:ci-*", "user:alice"]}})
    bundle = load_posture("standard", {"a.cedar": '@id("all") permit (principal, action, resource);'})
    for principal, reason in (("agent:demo", Reason.POLICY_ERROR), ("agent:ci-1", None), ("user:alice", None)):
        ports = fake_ports(config=config, policies=FakePolicies(bundle))
        run = fake_run(config, principal=principal)
        outcome = asyncio.run(Engine(ports, REGISTRY).call(CallRequest(tool="palyra.echo", input={}, run=run)))
        assert outcome.reason is reason
        assert len(ports.journal.closings) == 1
        if reason:
            assert f"{principal} is not a known principal" in (outcome.message or "")


def test_an_unknown_tool_never_reaches_policy():
    outcome, ports = call(load_posture("standard"), "palyra.nothing", {})
    assert outcome.reason is Reason.UNKNOWN_TOOL
    assert ports.journal.closings[0].entry.predicate["decision"]["effect"] == "none"


def test_a_context_that_is_too_large_is_refused_and_not_cut():
    ports = fake_ports()
    run = fake_run()
    run = replace(run, context=replace(run.context, device="x" * 2000))
    outcome = asyncio.run(Engine(ports, REGISTRY).call(CallRequest(tool="palyra.echo", input={}, run=run)))
    assert outcome.reason is Reason.POLICY_ERROR


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("permit (principal, action, resource)\nwhen { context.nothing };", "local/a.cedar:1: "),
        (
            '@id("a") permit (principal, action, resource);\n@id("b") permit (principal, action, resource) when { 1 };',
            ":2: ",
        ),
        ('@id("a") permit (principal, action, resource) when { context.nothing };', "policy 'a'"),
        ('@id("a") permit (principal == Robot::"x", action, resource);', "policy 'a'"),
        ('@id("a") permit (principal, action, resource) when { context.hour == "3" };', "policy 'a'"),
        ('@id("a") permit (principal, action == Action::"fly", resource);', "policy 'a'"),
    ],
)
def test_a_broken_policy_is_named_with_its_place(text: str, place: str):
    with pytest.raises(PolicyError) as caught:
        load_posture("standard", {"a.cedar": text})
    assert place in caught.value.detail
    assert caught.value.file == "local/a.cedar"
