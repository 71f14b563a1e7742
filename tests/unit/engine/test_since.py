"""A decision does not outlive its wait: what changed before a call's turn came is seen before it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from palyra.engine.claims import WHOLE
from palyra.engine.runs import Run, RunScope
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.approval import ApprovalState
from palyra.model.call import OperatorGrant
from palyra.model.net import EgressMode
from palyra.model.outcome import Outcome, Status
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.model.sights import LookRequest, Sights
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeClock, FakeExecutor, FakeLook, FakePolicies, fake_ports, fake_run
from palyra.testing_approvals import FakeApprover
from palyra.testing_runs import FakeRunFacts
from tests.promises import promise

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


@promise("policy.secret-after-content")
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


class ChangingLook(FakeLook):
    """What the disk says from some moment on: that a repository of the agent's names a program, or another file."""

    program = ""
    sha256 = "a" * 64

    def look(self, request: LookRequest) -> Sights:
        sights = super().look(request)
        return replace(sights, git_program=self.program, executable=replace(sights.executable, sha256=self.sha256))


def run_behind(first: str, second: str, look: ChangingLook, **given: Any) -> tuple[list[Outcome], Any]:
    """`second` comes while `first` runs, which makes the repository; it is assessed before that has happened."""

    async def cover() -> None:
        for _ in range(20):
            await asyncio.sleep(0)  # meanwhile the other one is assessed, and waits
        look.program = "filter.x.clean in .git/config"

    ports = fake_ports(executor=FakeExecutor(during=cover), look=look)

    async def together() -> list[Outcome]:
        engine = Engine(ports, REGISTRY)
        words = ({"command": line.split()[0], "args": line.split()[1:]} for line in (first, second))
        run = fake_run(scope=RunScope.SESSION, **given)
        asked = (CallRequest(tool="palyra.process.run", input=each, run=run) for each in words)
        return await asyncio.gather(*map(engine.call, asked))

    return asyncio.run(together()), ports


@promise("calls.queued-reassessment")
def test_a_call_that_waited_is_judged_by_what_the_disk_says_in_its_turn():
    """`git add` queued behind `find -exec cp g .git` ran the filter that the first call had put there."""
    (first, second), ports = run_behind("cp -r g .git", "git add x", ChangingLook())
    assert first.success
    assert (second.status, second.reason) == (Status.REFUSED, Reason.INTERPRETER_DENIED)
    assert len(ports.executor.plans) == 1


@promise("calls.queued-reassessment")
def test_a_call_that_waited_runs_on_the_terms_of_its_turn():
    """With interpreters granted it goes on, as the code that it has become."""
    (first, second), ports = run_behind(
        "cp -r g .git", "git add x", ChangingLook(), grant=OperatorGrant(interpreters=True)
    )
    assert (first.success, second.success, len(ports.executor.plans)) == (True, True, 2)


@promise("calls.queued-reassessment")
def test_a_call_that_did_not_wait_is_judged_again_too_where_a_writer_ended_beside_it():
    """It was assessed while the writer ran, and came to its turn just after that one's end."""
    look = ChangingLook()
    made = asyncio.Event()
    memory = FakeRunFacts()
    ports = fake_ports(look=look, run_facts=memory)

    async def story() -> Outcome:
        engine, run = Engine(ports, REGISTRY), fake_run(grant=OperatorGrant(egress=EgressMode.NONE))

        async def mark(*_: Any) -> None:
            await made.wait()  # between the look and the turn

        memory.mark = mark  # type: ignore[method-assign]
        later = asyncio.ensure_future(
            engine.call(CallRequest(tool="palyra.process.run", input={"command": "git", "args": ["status"]}, run=run))
        )
        while not look.requests:
            await asyncio.sleep(0)
        async with engine._turns.take(run.run_id, WHOLE):
            look.program = "core.gitproxy in .git/config"
        made.set()
        return await later

    assert asyncio.run(story()).reason is Reason.INTERPRETER_DENIED
    assert ports.executor.plans == []


@promise("calls.queued-reassessment")
def test_a_call_that_would_now_touch_more_than_it_waited_for_waits_once_more():
    """A reading program became a script of the agent's behind a writer: it goes alone."""
    look = FakeLook()
    seen = list[int]()

    async def story() -> list[Outcome]:
        engine, run = Engine(ports, REGISTRY), fake_run(grant=OperatorGrant(interpreters=True))
        asked = (
            CallRequest(tool="palyra.process.run", input={"command": name, "args": [path]}, run=run)
            for name, path in (("rm", "x"), ("cat", "a"), ("cat", "b"))
        )
        return await asyncio.gather(*map(engine.call, asked))

    running = 0

    async def during() -> None:
        nonlocal running
        running += 1
        for _ in range(20):
            await asyncio.sleep(0)
        seen.append(running)
        running -= 1
        look.shebangs["cat"] = "bash"

    ports = fake_ports(executor=FakeExecutor(during=during), look=look)
    assert all(outcome.success for outcome in asyncio.run(story()))
    assert seen == [1, 1, 1]


@promise("calls.queued-reassessment")
def test_an_approval_of_what_a_call_would_have_done_does_not_cover_what_it_would_do_now():
    text = """@id("local.ask") forbid (principal, action, resource) when { context.program == "git" }
    unless { context.approved };"""
    look, policies = ChangingLook(), FakePolicies(load_posture("standard", {"a.cedar": text}))

    async def another_git() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        look.sha256 = "b" * 64

    approver = FakeApprover(state=ApprovalState.APPROVED)
    ports = fake_ports(executor=FakeExecutor(during=another_git), look=look, approver=approver, policies=policies)

    async def together() -> list[Outcome]:
        engine, run = Engine(ports, REGISTRY), fake_run(scope=RunScope.SESSION)
        words = ({"command": "rm"}, {"command": "git", "args": ["status"]})
        asked = (CallRequest(tool="palyra.process.run", input=each, run=run) for each in words)
        return await asyncio.gather(*map(engine.call, asked))

    first, second = asyncio.run(together())
    assert first.success
    assert (second.status, second.reason) == (Status.REFUSED, Reason.NOT_APPROVED)
    assert "changed while it waited" in (second.message or "")
    assert len(ports.executor.plans) == 1
