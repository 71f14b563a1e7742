"""Lines of a client that may send anything."""

from __future__ import annotations

import asyncio
import os

from palyra.mcp.stdio import Lines
from palyra.mcp.strict_messages import NotUnderstood


def read_all(data: bytes, *, max_line_bytes: int = 100) -> list[str]:
    """Lines that are handed on; of others the beginning of their answers."""

    async def whole() -> list[str]:
        reading, writing = os.pipe()
        lines = Lines(reading, max_line_bytes=max_line_bytes)
        found: list[str] = []

        async def answer(refused: NotUnderstood) -> None:
            found.append(refused.refusal.detail[:30])

        lines.answer.set_result(answer)

        def feed() -> None:
            with os.fdopen(writing, "wb") as file:
                file.write(data)

        feeding = asyncio.get_running_loop().run_in_executor(None, feed)
        async for line in lines:
            found.append(line)  # noqa: PERF401  # answers come between
        await feeding
        os.close(reading)
        return found

    return asyncio.run(whole())


PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
NOTE = '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
TOO_LONG = "The message has more than 100 "


def test_lines_come_whole_and_in_order():
    assert read_all(f"{PING}\n{NOTE}\n".encode()) == [PING, NOTE]


def test_a_line_longer_than_the_limit_is_thrown_away_and_answered_and_the_next_one_is_read():
    assert read_all(b"x" * 1_000_000 + f"\n{PING}\n".encode()) == [TOO_LONG, PING]
    padded = PING + " " * (100 - len(PING))
    assert read_all(b"x" * 101 + f"\n{padded}\n".encode()) == [TOO_LONG, padded]


def test_bytes_that_are_no_text_are_answered_and_a_last_line_without_end_does_no_harm():
    assert read_all(b"\xff\xfe\n\x00\n\nhalf a li") == [
        "The message is not UTF-8: byte",
        "The message is not JSON: expec",
    ]
