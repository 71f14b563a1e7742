"""Lines of a client that may send anything."""

from __future__ import annotations

import asyncio
import os

from palyra.mcp.stdio import TOO_LONG, Lines


def read_all(data: bytes, *, max_line_bytes: int = 100) -> list[str]:
    async def whole() -> list[str]:
        reading, writing = os.pipe()
        lines = Lines(reading, max_line_bytes=max_line_bytes)

        def feed() -> None:
            with os.fdopen(writing, "wb") as file:
                file.write(data)

        feeding = asyncio.get_running_loop().run_in_executor(None, feed)
        found = [line async for line in lines]
        await feeding
        os.close(reading)
        return found

    return asyncio.run(whole())


def test_lines_come_whole_and_in_order():
    assert read_all(b'{"a": 1}\n{"b": 2}\n') == ['{"a": 1}', '{"b": 2}']


def test_a_line_longer_than_the_limit_is_thrown_away_and_the_next_one_is_read():
    assert read_all(b"x" * 1_000_000 + b"\nnext\n") == [TOO_LONG, "next"]
    assert read_all(b"x" * 101 + b"\n" + b"y" * 100 + b"\n") == [TOO_LONG, "y" * 100]


def test_bytes_that_are_no_text_and_a_last_line_without_end_do_no_harm():
    assert read_all(b"\xff\xfe\n\x00\nhalf a li") == ["\ufffd\ufffd", "\x00"]
