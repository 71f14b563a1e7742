"""Rules over time: what a run has done follows it, and the default policies ask before a secret can leave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from palyra.engine.builtin import HANDLERS
from palyra.engine.runs import RunScope
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import ConfigError, Reason, StateError
from palyra.model.approval import ApprovalState
from palyra.model.outcome import Outcome, Status
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.model.tool import Capability
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeApprover, FakePolicies, fake_ports, fake_run
from palyra.testing_runs import FakeRunFacts
from tests.promises import promise

ECHO = next(spec for spec in BUILTIN_TOOLS if spec.name == "palyra.echo")
SECRET = replace(ECHO, name="palyra.secret", capabilities=frozenset({Capability.SECRETS_READ}))
REACH = replace(ECHO, name="palyra.reach", capabilities=frozenset({Capability.NETWORK}))
REGISTRY = make_registry((*BUILTIN_TOOLS, SECRET, REACH))


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in (SECRET, REACH):
        monkeypatch.setitem(HANDLERS, spec.name, HANDLERS["palyra.echo"])


def call(ports: Any, tool: str, *, run: Any = None) -> Outcome:
    request = CallRequest(tool=tool, input={}, run=run or fake_run())
    return asyncio.run(Engine(ports, REGISTRY).call(request))


@promise("policy.secret-after-content")
def test_after_outside_content_and_a_secret_reaching_out_asks():
    """Each alone is fine; the three together are how a secret leaves."""
    memory = FakeRunFacts()
    yes, no = (
        fake_ports(run_facts=memory, approver=FakeApprover(state=ApprovalState.APPROVED)),
        fake_ports(run_facts=memory),
    )
    assert call(no, "palyra.reach").success
    assert call(no, "palyra.reach").success
    assert call(yes, "palyra.secret").success
    outcome = call(no, "palyra.reach")
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.NOT_APPROVED)
    assert no.journal.closings[-1].entry.predicate["decision"]["policies"] == ["guard.65-secret-after-outside-content"]
    assert call(yes, "palyra.reach").success
    assert call(no, "palyra.echo").success, "what cannot reach out goes on"
    assert call(no, "palyra.reach", run=fake_run(run_id="01HF7YAT000000000000000NEW")).success, "another run is another"


def test_a_label_is_durable_before_the_call_runs_and_without_it_nothing_runs():
    class Down(FakeRunFacts):
        async def mark(self, *_: object) -> None:
            raise StateError("disk full")

    ports = fake_ports(run_facts=Down())
    assert call(ports, "palyra.reach").reason is Reason.JOURNAL_DOWN
    assert ports.journal.openings == []


def test_a_run_that_ends_with_its_call_keeps_no_labels():
    memory = FakeRunFacts()
    call(fake_ports(run_facts=memory), "palyra.reach", run=replace(fake_run(), scope=RunScope.CALL))
    assert memory.marked == {}


def test_a_program_that_can_reach_a_host_receives_outside_content():
    memory = FakeRunFacts()
    ports = fake_ports(run_facts=memory)
    run = fake_run(egress=None)
    asyncio.run(Engine(ports, REGISTRY).call(CallRequest(tool="palyra.process.run", input={"command": "ls"}, run=run)))
    assert memory.marked == {}, "strict egress without hosts reaches nothing"


def test_counters_are_in_the_context():
    text = '@id("local.slow") forbid (principal, action, resource) when { context.denials_last_minute >= 3 };'
    bundle = load_posture("standard", {"a.cedar": text})
    for denials, reason in ((2, None), (3, Reason.POLICY_DENIED)):
        facts = FakeRunFacts(RunFacts(calls_last_minute=5, denials_last_minute=denials))
        assert call(fake_ports(run_facts=facts, policies=FakePolicies(bundle)), "palyra.echo").reason is reason


# ---- shadow ---------------------------------------------------------------------------------------------------------


class Broken:
    def current(self) -> Any:
        raise ConfigError("a.cedar:1: not Cedar")


@pytest.mark.parametrize(
    ("candidate", "recorded"),
    [
        (FakePolicies(load_posture("standard")), None),
        (
            FakePolicies(load_posture("locked")),
            {
                "policy_sha256": load_posture("locked").digest,
                "effect": "deny",
                "reason": "POLICY_DENIED",
                "policies": [],
            },
        ),
        (Broken(), {"error": "a.cedar:1: not Cedar"}),
    ],
)
def test_a_candidate_is_asked_beside_and_only_a_difference_is_recorded(candidate, recorded):
    ports = fake_ports(candidate=candidate)
    assert call(ports, "palyra.echo").success, "it changes nothing"
    assert orjson.loads(ports.journal.openings[-1].details)["shadow"] == recorded


def test_labels_are_the_attributes_of_the_context():
    assert {label.value for label in RunLabel} == {"has_used_secret", "has_received_outside_content"}
