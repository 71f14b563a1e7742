"""Frames go together in order, none is lost, a slow reader makes the writer wait, and nobody's call is ended."""

from __future__ import annotations

import asyncio

from palyra.cluster import batches
from palyra.cluster.batches import MOST_FRAMES, Batches, Frames, Serve, unpack


async def read_all(kept: Batches, serve: Serve) -> tuple[list[bytes], int]:
    handle, more, found = unpack(await kept.begin(serve))
    answers = 1
    while more:
        _, more, fresh = unpack(await kept.more(handle))
        found += fresh
        answers += 1
    return found, answers


def test_a_short_call_is_one_answer():
    async def serve(frames: Frames) -> None:
        frames.put(b"1hello")
        frames.put(b"")
        frames.put_last(b"=end")

    assert asyncio.run(read_all(Batches(), serve)) == ([b"1hello", b"", b"=end"], 1)


def test_a_long_one_is_told_as_it_goes_and_none_is_lost():
    async def serve(frames: Frames) -> None:
        for number in range(300):
            while (room := frames.room()) is not None:
                await room
            frames.put(b"%d" % number)
            if number % 100 == 0:
                await asyncio.sleep(0.05)

    found, answers = asyncio.run(read_all(Batches(), serve))
    assert found == [b"%d" % number for number in range(300)]
    assert answers > 1


def test_what_nobody_fetches_is_bounded_and_then_ended(monkeypatch):
    monkeypatch.setattr(batches, "ABANDONED_S", 0.05)
    made, closed = 0, False

    async def serve(frames: Frames) -> None:
        nonlocal made, closed
        try:
            while True:
                while (room := frames.room()) is not None:
                    await room
                made += 1
                frames.put(b"x")
                await asyncio.sleep(0)
        finally:
            closed = True

    async def scenario() -> bytes:
        kept = Batches()
        handle, _, taken = unpack(await kept.begin(serve))
        async with asyncio.timeout(5):
            while not closed:
                await asyncio.sleep(0.01)
        assert made <= len(taken) + MOST_FRAMES
        return await kept.more(handle)

    assert unpack(asyncio.run(scenario()))[1:] == (False, [])  # and it is forgotten


def test_a_silent_program_whose_end_somebody_waits_for_is_not_ended(monkeypatch):
    monkeypatch.setattr(batches, "ABANDONED_S", 0.05)

    async def serve(frames: Frames) -> None:
        await asyncio.sleep(0.3)
        frames.put_last(b"=end")

    assert asyncio.run(read_all(Batches(), serve)) == ([b"=end"], 1)


def test_a_call_that_breaks_without_its_last_frame_is_over_and_nobody_waits_for_ever():
    async def serve(frames: Frames) -> None:
        frames.put(b"1hello")
        raise RuntimeError("broken")

    assert asyncio.run(read_all(Batches(), serve)) == ([b"1hello"], 1)


def test_a_handle_nobody_knows_is_over():
    assert unpack(asyncio.run(Batches().more("0" * 32))) == ("0" * 32, False, [])
