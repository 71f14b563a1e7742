"""Frames go together in order, none is lost, a slow reader makes the writer wait, and nobody's call is ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from palyra.cluster import batches
from palyra.cluster.batches import Batches, unpack


async def read_all(kept: Batches, frames: AsyncGenerator[bytes, None]) -> tuple[list[bytes], int]:
    handle, more, found = unpack(await kept.begin(frames))
    answers = 1
    while more:
        _, more, fresh = unpack(await kept.more(handle))
        found += fresh
        answers += 1
    return found, answers


def test_a_short_call_is_one_answer():
    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"1hello"
        yield b""
        yield b"=end"

    assert asyncio.run(read_all(Batches(), frames())) == ([b"1hello", b"", b"=end"], 1)


def test_a_long_one_is_told_as_it_goes_and_none_is_lost():
    async def frames() -> AsyncGenerator[bytes, None]:
        for number in range(300):
            yield b"%d" % number
            if number % 100 == 0:
                await asyncio.sleep(0.05)

    found, answers = asyncio.run(read_all(Batches(), frames()))
    assert found == [b"%d" % number for number in range(300)]
    assert answers > 1


def test_what_nobody_fetches_is_bounded_and_then_ended(monkeypatch):
    monkeypatch.setattr(batches, "ABANDONED_S", 0.05)
    made, closed = 0, False

    async def frames() -> AsyncGenerator[bytes, None]:
        nonlocal made, closed
        try:
            while True:
                made += 1
                yield b"x"
                await asyncio.sleep(0)
        finally:
            closed = True

    async def scenario() -> None:
        await Batches().begin(frames())
        async with asyncio.timeout(5):
            while not closed:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert made < 10_000


def test_a_handle_nobody_knows_is_over():
    assert unpack(asyncio.run(Batches().more("0" * 32))) == ("0" * 32, False, [])
