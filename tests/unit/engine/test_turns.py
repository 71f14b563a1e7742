"""Turns: readers share, writers go alone, first come first served, runs never wait for each other."""

from __future__ import annotations

import asyncio

from palyra.engine import turns as turns_module
from palyra.engine.claims import NOTHING, READING, WHOLE, Claim
from palyra.engine.turns import Turns
from palyra.errors import Reason, Rejected

READ, WRITE = READING, WHOLE
KINDS = {"r": READING, "w": WHOLE, "n": NOTHING, "a": Claim(writes=("/ws/a",)), "b": Claim(writes=("/ws/b",)),
         "x": Claim(reads=("/ws/a",))}  # fmt: skip


async def play(kinds: str, *, runs: str = "") -> list[str]:
    """Each letter a call of KINDS; what is noted is the order of begins and ends."""
    turns, log = Turns(), []

    async def one(number: int, kind: str) -> None:
        run = runs[number] if runs else "run"
        async with turns.take(run, KINDS[kind]):
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


def test_writers_of_different_places_go_on_together():
    assert asyncio.run(play("ab"))[:2] == ["+0", "+1"]


def test_who_reads_where_another_writes_waits_and_others_go_past():
    log = asyncio.run(play("axb"))
    assert log.index("+2") < log.index("-0") < log.index("+1")


def test_nobody_goes_past_one_who_waits_for_the_same_place():
    log = asyncio.run(play("rarr"))
    assert log.index("-0") < log.index("+1") < log.index("+2")


def test_who_claims_nothing_waits_for_nobody():
    assert asyncio.run(play("wnn"))[:3] == ["+0", "+1", "+2"]


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


def test_who_waited_behind_a_cancelled_one_goes_on():
    async def story() -> list[str]:
        turns, log = Turns(), []
        gate = asyncio.Event()

        async def one(name: str, claim: Claim) -> None:
            async with turns.take("run", claim):
                log.append(name)
                await gate.wait()

        reader, writer, later = (
            asyncio.ensure_future(one(name, claim)) for name, claim in (("r", READ), ("w", WRITE), ("l", READ))
        )
        await asyncio.sleep(0)
        writer.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert log == ["r", "l"]
        gate.set()
        await asyncio.gather(reader, writer, later, return_exceptions=True)
        assert turns._lines == {}
        return log

    asyncio.run(story())


def test_many_waiters_cancelled_at_once_all_end_as_cancelled():
    """The first that gave up its place took the others' away, and theirs was an error of our own."""

    async def story() -> list[object]:
        turns = Turns()

        async def one() -> None:
            async with turns.take("run", WRITE):
                await asyncio.Event().wait()

        tasks = [asyncio.ensure_future(one()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert turns._lines == {}
        return [type(error) for error in ended]

    assert asyncio.run(story()) == [asyncio.CancelledError] * 5


def test_who_was_announced_is_told_of_every_writer_that_ended_since():
    async def story() -> None:
        turns = Turns()
        with turns.announce("run") as has_changed, turns.announce("other") as elsewhere:
            async with turns.take("run", READ):
                assert not has_changed()
            assert not has_changed(), "a reader changes nothing"
            async with turns.take("run", WRITE):
                assert not has_changed(), "it has not ended"
            assert has_changed()
            assert not elsewhere(), "of its own run"
            with turns.announce("run") as later:
                assert not later()
        assert turns._lines == {}

    asyncio.run(story())
