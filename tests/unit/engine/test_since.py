"""A decision does not outlive its wait: what changed before a call's turn came is seen before it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palyra.engine.runs import Run
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.call import OperatorGrant
from palyra.model.net import EgressMode
from palyra.model.outcome import Outcome, Status
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeClock, FakeExecutor, FakePolicies, fake_ports, fake_run
from palyra.testing_runs import FakeRunFacts

REGISTRY = make_registry(BUILTIN_TOOLS)
OTHERS = load_posture("standard", {"a.cedar": '@id("local.no") forbid (principal, action, resource);'})


def two_of(run: Run, during: Callable[[], Awaitable[None]], **given: Any) -> tuple[list[Outcome], Any]:
    """Two calls that come together, of which the second waits for the first; `during` happens while that runs."""
    ports = fake_ports(executor=FakeExecutor(during=during), **given)

    async def together() -> list[Outcome]:
        engine = Engine(ports, REGISTRY)
        asked = (CallRequest(tool="palyra.process.run", input={"command": c}, run=run) for c in ("rm", "rm"))
        return await asyncio.gather(*map(engine.call, asked))

    return asyncio.run(together()), ports


def test_a_call_that_waited_does_not_begin_under_policies_revoked_meanwhile():
    policies = FakePolicies()

    async def revoke() -> None:
        await asyncio.sleep(0.05)  # meanwhile the other one is decided, and waits
        policies.bundle = OTHERS

    (first, second), ports = two_of(fake_run(), revoke, policies=policies)
    assert first.success
    assert (second.status, second.reason, second.hint) == (Status.REFUSED, Reason.POLICY_DENIED, "Call again.")
    assert (len(ports.executor.plans), len(ports.journal.closings)) == (1, 2), "refused, and written down"


def test_a_call_that_waited_under_the_same_policies_begins():
    async def nothing() -> None:
        await asyncio.sleep(0.05)

    (first, second), ports = two_of(fake_run(), nothing)
    assert (first.success, second.success, len(ports.executor.plans)) == (True, True, 2)


def test_a_call_that_waited_into_an_hour_without_permission_does_not_begin():
    clock = FakeClock()
    later = clock.now // 3_600_000 % 24 + 1
    text = f'@id("local.shift") forbid (principal, action, resource) when {{ context.hour == {later % 24} }};'

    async def an_hour_goes_by() -> None:
        await asyncio.sleep(0.05)
        clock.advance(3_600_000)

    policies = FakePolicies(load_posture("standard", {"a.cedar": text}))
    (first, second), ports = two_of(fake_run(), an_hour_goes_by, policies=policies, clock=clock)
    assert first.success
    assert (second.status, second.reason) == (Status.REFUSED, Reason.POLICY_DENIED)
    assert len(ports.executor.plans) == 1


def test_a_call_sent_together_with_one_that_uses_a_secret_is_decided_again_in_its_turn():
    """It was allowed before the secret was used, waited behind that call, and would have carried it out."""
    memory = FakeRunFacts(facts=RunFacts(labels=frozenset({RunLabel.HAS_RECEIVED_OUTSIDE_CONTENT})))
    run = fake_run(grant=OperatorGrant(egress=EgressMode.NONE))

    async def uses_a_secret() -> None:
        await asyncio.sleep(0.05)
        await memory.mark(run.owner, "c", {RunLabel.HAS_USED_SECRET})

    (first, second), ports = two_of(run, uses_a_secret, run_facts=memory)
    assert first.success
    assert (second.status, second.reason) == (Status.REFUSED, Reason.NOT_APPROVED)
    assert len(ports.executor.plans) == 1
