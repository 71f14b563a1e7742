"""Turns: readers share, writers go alone, first come first served, runs never wait for each other."""

from __future__ import annotations

import asyncio

from palyra.engine import turns as turns_module
from palyra.engine.turns import Turns
from palyra.errors import Reason, Rejected
from palyra.model.tool import Parallelism

READ, WRITE = Parallelism.READ_ONLY, Parallelism.EXCLUSIVE


async def play(kinds: str, *, runs: str = "") -> list[str]:
    """Each letter a call, r or w; what is noted is the order of begins and ends."""
    turns, log = Turns(), []

    async def one(number: int, kind: str) -> None:
        run = runs[number] if runs else "run"
        async with turns.take(run, READ if kind == "r" else WRITE):
            log.append(f"+{number}")
            for _ in range(3):
                await asyncio.sleep(0)
            log.append(f"-{number}")

    await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
    assert turns._lines == {}, "an idle run leaves nothing behind"
    return log


def test_reading_calls_go_on_together():
    assert asyncio.run(play("rr"))[:2] == ["+0", "+1"]


def test_an_exclusive_call_goes_alone_and_in_its_turn():
    assert asyncio.run(play("wrw")) == ["+0", "-0", "+1", "-1", "+2", "-2"]


def test_a_waiting_writer_is_not_starved_by_later_readers():
    log = asyncio.run(play("rwr"))
    assert log.index("+1") < log.index("+2")


def test_runs_are_never_serialised_against_each_other():
    assert asyncio.run(play("ww", runs="ab"))[:2] == ["+0", "+1"]


def test_a_cancelled_waiter_gives_its_place_to_the_next():
    async def story() -> list[str]:
        turns, log = Turns(), []
        gate = asyncio.Event()

        async def one(name: str) -> None:
            async with turns.take("run", WRITE):
                log.append(name)
                await gate.wait()

        first, second, third = (asyncio.ensure_future(one(name)) for name in "abc")
        await asyncio.sleep(0)
        second.cancel()
        gate.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert turns._lines == {}
        return log

    assert asyncio.run(story()) == ["a", "c"]


def test_a_full_queue_answers_busy(monkeypatch):
    monkeypatch.setattr(turns_module, "MAX_WAITING", 1)

    async def story() -> Reason:
        turns = Turns()
        async with turns.take("run", WRITE):
            waiting = asyncio.ensure_future(turns.take("run", WRITE).__aenter__())
            await asyncio.sleep(0)
            try:
                await turns.take("run", WRITE).__aenter__()
            except Rejected as refusal:
                return refusal.reason
            finally:
                waiting.cancel()
        raise AssertionError("nothing was refused")

    assert asyncio.run(story()) is Reason.BUSY
