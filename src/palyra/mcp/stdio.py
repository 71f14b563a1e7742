"""Touches: stdin and stdout of `palyra mcp`. Lines in, bounded; the SDK writes the lines out.

Rules: the SDK sees only messages that `strict_messages` understands; every other line is answered with an error. A line
longer than the limit is thrown away while it comes, never kept; one chunk is read for one that is wanted,
so a client that floods is held up by the pipe. stdout carries protocol and nothing else: the SDK moves it aside for the
time of serving, and what anything prints goes to stderr.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from palyra.mcp.strict_messages import NotUnderstood, check_message, too_long

Answer: TypeAlias = Callable[[NotUnderstood], Awaitable[None]]

MAX_LINE_BYTES = 4 << 20
"""A tool's input is 448 KiB at most; escaped in JSON that can be six times as much."""
CHUNK_BYTES = 64 * 1024


class Lines:
    """An async iterator of text lines, as the SDK's stdio transport reads them."""

    def __init__(self, fd: int = 0, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        """Set by the server once it can answer; lines wait for it."""
        self._fd = fd
        self._max = max_line_bytes
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(0)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._buffer = bytearray()
        self._skipping = False
        self._ended = False
        threading.Thread(target=self._read, name="palyra-mcp-stdin", daemon=True).start()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while True:
            line = self._take()
            if line is not None:
                refused = line if isinstance(line, NotUnderstood) else check_message(line)
                if isinstance(line, bytes) and refused is None:
                    return line.decode("utf-8")
                if refused is not None and line != b"":
                    await (await self.answer)(refused)
                continue
            if self._ended:
                raise StopAsyncIteration
            self._wanted.release()
            chunk = await self._chunks.get()
            self._ended = not chunk
            self._buffer += chunk

    def _take(self) -> bytes | NotUnderstood | None:
        """A whole line that is not empty; of one that is too long nothing but the fact."""
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > self._max:
                self._buffer.clear()
                self._skipping = True
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        skipped, self._skipping = self._skipping or len(line) > self._max, False
        return too_long(self._max) if skipped else line

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            self._wanted.acquire()
            chunk = self._next()
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed

    def _next(self) -> bytes:
        """Waited for, also where whoever shares our stdin had it not wait: that is not its end."""
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        while True:
            ready.poll()
            try:
                return os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return b""
