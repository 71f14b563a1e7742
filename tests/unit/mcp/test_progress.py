"""Progress from output: rising, bounded, never the whole flood."""

from __future__ import annotations

import asyncio

from palyra.mcp.progress import MAX_CHARS, Progress
from palyra.model.outcome import StreamName


def reports(*chunks: bytes, pause_s: float = 0.0) -> list[tuple[float, str | None]]:
    told: list[tuple[float, str | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        told.append((done, message))

    async def whole() -> None:
        progress = Progress(report)
        async with progress.reporting():
            for chunk in chunks:
                progress(StreamName.STDOUT, chunk)
                await asyncio.sleep(pause_s)

    asyncio.run(whole())
    return told


def test_what_came_is_told_once_at_the_latest_at_the_end():
    assert reports(b"one\n", b"two\n")[-1][0] == 8
    assert "".join(message or "" for _, message in reports(b"one\n", b"two\n")) == "one\ntwo\n"


def test_a_flood_is_told_by_its_tail_and_counted_whole():
    told = reports(*[b"x" * 4096] * 500)
    assert told[-1][0] == 4096 * 500
    assert len(told) < 20
    assert all(len(message or "") <= MAX_CHARS for _, message in told)


def test_the_count_only_rises():
    counts = [done for done, _ in reports(b"a", b"b", b"c", pause_s=0.15)]
    assert counts == sorted(set(counts))
    assert counts[-1] == 3


def test_a_character_cut_in_two_is_told_whole():
    assert "".join(message or "" for _, message in reports(b"\xc3", b"\xa9")) == "é"
