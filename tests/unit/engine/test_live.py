"""Ending a call before its time: the record is closed, and whose wish it was decides what its caller sees."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palyra.engine import endings, walk
from palyra.engine.live import finish_whatever_comes
from palyra.engine.record import make_closing
from palyra.engine.runs import RunScope
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.outcome import Outcome, Status
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeExecutor, fake_ports, fake_run

ULID = "01HF7YAT00000000000000CA11"


def request(**options: Any) -> CallRequest:
    return CallRequest(
        tool="palyra.process.run", input={"command": "ls"}, run=fake_run(), **({"call_id": ULID} | options)
    )


def slow_engine() -> tuple[Engine, Any]:
    ports = fake_ports(executor=FakeExecutor(stdout=b"so far", during=lambda: asyncio.sleep(60)))
    return Engine(ports, make_registry(BUILTIN_TOOLS)), ports


async def running(ports: Any) -> None:
    while not ports.executor.plans:
        await asyncio.sleep(0)


def statuses(ports: Any) -> list[str]:
    return [closing.status for closing in ports.journal.closings]


def test_a_call_that_the_engine_cancels_does_not_cancel_its_caller():
    engine, ports = slow_engine()

    async def caller() -> Outcome:
        outcome = await engine.call(request())
        await asyncio.sleep(0)  # where a cancellation left behind would strike
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return outcome

    async def story() -> Outcome:
        task = asyncio.create_task(caller())
        await running(ports)
        assert engine.cancel(ULID)
        assert engine.cancel(ULID), "asking twice is asking once"
        return await task

    assert asyncio.run(story()).status is Status.CANCELLED
    assert statuses(ports) == ["cancelled"]


def test_a_cancellation_that_came_too_late_is_not_left_for_the_caller():
    ports = fake_ports(executor=FakeExecutor(stdout=b"all of it"))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))

    async def story() -> Outcome:
        outcome = await engine.call(request(on_output=lambda *_: engine.cancel(ULID)))
        await asyncio.sleep(0)
        return outcome

    assert asyncio.run(story()).status is Status.COMPLETED
    assert not engine.cancel(ULID), "it has ended"


def test_a_caller_that_is_cancelled_too_is_told_so_after_the_record_is_closed():
    engine, ports = slow_engine()

    async def story() -> None:
        task = asyncio.create_task(engine.call(request()))
        await running(ports)
        engine.cancel(ULID)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert statuses(ports) == ["cancelled"]


def test_a_deadline_around_a_call_ends_it_as_a_timeout_of_the_caller():
    engine, ports = slow_engine()

    async def story() -> None:
        async with asyncio.timeout(0.02):
            await engine.call(request())

    with pytest.raises(TimeoutError):
        asyncio.run(story())
    assert statuses(ports) == ["cancelled"]


def test_whoever_cancels_again_and_again_does_not_keep_the_record_open():
    engine, ports = slow_engine()
    close_call, begun = ports.journal.close_call, asyncio.Event()

    async def slowly(closing: Any) -> Any:
        begun.set()
        await finish_whatever_comes(asyncio.sleep(0.02))  # as the journal promises
        return await close_call(closing)

    ports.journal.close_call = slowly
    ports.journal.close_now = lambda closing: None

    async def story() -> None:
        task = asyncio.create_task(engine.call(request()))
        await running(ports)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert begun.is_set()
    assert statuses(ports) == ["cancelled"]


def test_a_call_in_the_clean_up_of_a_cancelled_task_runs_to_its_end():
    ports = fake_ports()
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))

    async def story() -> Outcome:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return await engine.call(request())
        raise AssertionError

    async def cancelled() -> Outcome:
        task = asyncio.create_task(story())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(cancelled()).status is Status.COMPLETED


def test_closing_the_engine_waits_for_the_records_and_not_for_the_callers():
    engine, ports = slow_engine()

    async def caller() -> None:
        await engine.call(request())
        await asyncio.Event().wait()

    async def story() -> None:
        task = asyncio.create_task(caller())
        await running(ports)
        await asyncio.wait_for(engine.close(), 10)
        assert statuses(ports) == ["cancelled"]
        assert not task.done()
        task.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("project", [True, False])
def test_a_record_that_has_to_wait_for_its_commit_is_made_and_signed_once(
    project: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = fake_ports(executor=FakeExecutor(stdout=b"short"))
    made = []

    def counted(*given: Any) -> Any:
        made.append(given)
        return make_closing(*given)

    for module in (endings, walk):
        monkeypatch.setattr(module, "make_closing", counted)
    monkeypatch.setattr(ports.journal, "close_now", lambda closing: None)
    outcome = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).call(request(project=project)))
    assert (outcome.status, len(made), len(ports.journal.closings)) == (Status.COMPLETED, 1, 1)
    assert outcome.receipt is not None


def test_a_large_output_is_kept_before_its_record_is_made() -> None:
    ports = fake_ports(executor=FakeExecutor(stdout=b"long\n" * 20_000))
    outcome = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).call(request(project=True)))
    assert [ref.name for ref in outcome.artifacts] == ["stdout"]
    assert outcome.attestation["projected_output_sha256"] is not None


def test_the_end_of_a_run_cancels_all_its_queued_calls_and_says_so_in_each_record():
    """All but the first that gave up its place ended INTERNAL."""
    engine, ports = slow_engine()
    run = fake_run(scope=RunScope.SESSION)

    async def story() -> list[Outcome]:
        asked = (CallRequest(tool="palyra.process.run", input={"command": "rm"}, run=run) for _ in range(5))
        calls = [asyncio.ensure_future(engine.call(request)) for request in asked]
        await running(ports)
        for _ in range(20):
            await asyncio.sleep(0)
        await engine.end_run(run)
        return await asyncio.gather(*calls)

    outcomes = asyncio.run(story())
    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [(Status.CANCELLED, Reason.CANCELLED)] * 5
    assert statuses(ports) == ["cancelled"] * 5
    assert len(ports.executor.plans) == 1
