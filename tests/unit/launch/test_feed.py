from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence

from palyra.launch.feed import Feed


class Chunks:
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = list(chunks)

    async def read(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


def read_all(fd: int) -> bytes:
    found = b""
    while chunk := os.read(fd, 65536):
        found += chunk
    return found


def test_bytes_and_stream_arrive_in_order_counted_and_hashed() -> None:
    async def go() -> None:
        read, write = os.pipe()
        feed = Feed(write)
        reading = asyncio.get_running_loop().run_in_executor(None, read_all, read)
        data, more = os.urandom(200_000), os.urandom(70_000)
        await feed.run(data, Chunks([more, b"end"]))
        assert await reading == data + more + b"end"
        assert feed.count == 270_003
        assert feed.sha256() == hashlib.sha256(data + more + b"end").hexdigest()
        os.close(read)

    asyncio.run(go())


def test_a_program_that_does_not_read_takes_only_what_the_pipe_holds() -> None:
    async def go() -> None:
        read, write = os.pipe()
        feed = Feed(write)
        data = os.urandom(1 << 20)
        task = asyncio.create_task(feed.run(data, None))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        held = read_all(read)
        assert 0 < feed.count < len(data)
        assert (held, feed.sha256()) == (data[: feed.count], hashlib.sha256(held).hexdigest())
        os.close(read)

    asyncio.run(go())


def test_a_program_that_is_gone_harms_nobody() -> None:
    async def go() -> None:
        read, write = os.pipe()
        os.close(read)
        feed = Feed(write)
        await feed.run(b"x" * 10, Chunks([b"never"]))
        assert feed.count == 0

    asyncio.run(go())
