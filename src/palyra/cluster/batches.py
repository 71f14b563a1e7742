"""Frames in batches, asked for one after the other: what is there goes together, and a short call is one answer.

Rules: an answer comes as soon as the call has ended, or a moment after its first output; what nobody fetches is bounded
and makes the program wait; if nobody asks for a minute the call is ended, because its daemon is gone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

TOGETHER_S = 0.01
ABANDONED_S = 60.0
MOST_FRAMES = 64
_HANDLE = 32
MORE, OVER = b"+", b"."


class Batches:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    async def begin(self, frames: AsyncGenerator[bytes, None]) -> bytes:
        for known in [name for name, held in self._open.items() if held.is_abandoned]:
            del self._open[known]
        handle = os.urandom(_HANDLE // 2).hex()
        self._open[handle] = _Open(frames)
        return await self.more(handle)

    async def more(self, handle: str) -> bytes:
        """Everything that came since the last answer; `pack_of` takes it apart."""
        held = self._open.get(handle)
        if held is None:
            return handle.encode() + OVER
        parts, over = await held.take()
        if over:
            self._open.pop(handle, None)
        packed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return handle.encode() + (OVER if over else MORE) + packed


def unpack(answer: bytes) -> tuple[str, bool, list[bytes]]:
    """(handle, whether there is more, frames)."""
    frames, at = [], _HANDLE + 1
    while at < len(answer):
        size = int.from_bytes(answer[at : at + 4], "big")
        frames.append(answer[at + 4 : at + 4 + size])
        at += 4 + size
    return answer[:_HANDLE].decode("ascii"), answer[_HANDLE : _HANDLE + 1] == MORE, frames


class _Open:
    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        self._frames: list[bytes] = []
        self._something, self._ended, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._pump = asyncio.ensure_future(self._run(frames))
        self._pump.add_done_callback(self._end)
        self._asked_at = asyncio.get_running_loop().time()

    @property
    def is_abandoned(self) -> bool:
        return self._pump.done() and asyncio.get_running_loop().time() - self._asked_at > ABANDONED_S

    def _end(self, _: object) -> None:
        self._something.set()
        self._ended.set()

    async def _run(self, frames: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(frames):
            async for frame in frames:
                self._frames.append(frame)
                self._something.set()
                if len(self._frames) >= MOST_FRAMES:
                    self._room.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(ABANDONED_S):
                            await self._room.wait()
                    if not self._room.is_set():
                        return

    async def take(self) -> tuple[list[bytes], bool]:
        self._asked_at = asyncio.get_running_loop().time()
        await self._something.wait()
        if not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(TOGETHER_S):
                    await self._ended.wait()
        parts, self._frames = self._frames, []
        if not self._ended.is_set():
            self._something.clear()
        self._room.set()
        if self._ended.is_set() and not self._pump.cancelled():
            self._pump.exception()  # without its last frame the call counts as lost, whatever it was
        return parts, self._ended.is_set()
