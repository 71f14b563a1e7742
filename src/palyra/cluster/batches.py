"""Frames in batches, asked for one after the other: what is there goes together, and a short call is one answer.

Rules: an answer comes as soon as the call has ended, or a moment after its first output; what nobody fetches is bounded
and makes the program wait; if nobody asks for a minute the call is ended, because its daemon is gone. What a call has
to say goes straight from its own task into the answer: each turn of the loop between them costs a short call dearly.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Protocol, TypeAlias

TOGETHER_S = 0.01
ABANDONED_S = 60.0
MOST_FRAMES = 64
_HANDLE = 32
MORE, OVER = b"+", b"."


class Outlet(Protocol):
    """Where a call's frames go."""

    def put(self, frame: bytes) -> None: ...
    def put_last(self, frame: bytes) -> None: ...
    def room(self) -> asyncio.Future[None] | None:
        """None while more may come; else done when it may."""


class Frames:
    """What one call says: written by its task, taken by whoever asks for more."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.is_over = False
        self._something, self._ended = asyncio.Event(), asyncio.Event()
        self._room: asyncio.Future[None] | None = None

    def put(self, frame: bytes) -> None:
        self.waiting.append(frame)
        self._something.set()

    def put_last(self, frame: bytes) -> None:
        self.put(frame)
        self.end()

    def end(self, *_: object) -> None:
        self.is_over = True
        self._something.set()
        self._ended.set()

    def room(self) -> asyncio.Future[None] | None:
        """None while more may come; else done when it may."""
        if len(self.waiting) < MOST_FRAMES:
            return None
        if self._room is None or self._room.done():
            self._room = asyncio.get_running_loop().create_future()
        return self._room

    async def take(self) -> tuple[list[bytes], bool]:
        """Everything that came since it was last asked for, and whether that was all."""
        await self._something.wait()
        if not self.is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(TOGETHER_S):
                    await self._ended.wait()
        taken, self.waiting = self.waiting, []
        if not self.is_over:
            self._something.clear()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return taken, self.is_over


Serve: TypeAlias = Callable[[Frames], Coroutine[None, None, None]]


class Batches:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    async def begin(self, serve: Serve) -> bytes:
        handle = os.urandom(_HANDLE // 2).hex()
        self._open[handle] = _Open(serve, lambda: self._open.pop(handle, None))
        return await self.more(handle)

    async def more(self, handle: str) -> bytes:
        """Everything that came since the last answer; `unpack` takes it apart."""
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
    """A call under way, and whether somebody still asks for it."""

    def __init__(self, serve: Serve, forget: Callable[[], object]) -> None:
        self._frames, self._forget = Frames(), forget
        self._task = asyncio.ensure_future(serve(self._frames))
        self._task.add_done_callback(self._end)
        self._asking = 0
        self._watch = asyncio.get_running_loop().call_later(ABANDONED_S, self._abandon)

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # without its last frame the call counts as lost, whatever it was
        self._frames.end()

    async def take(self) -> tuple[list[bytes], bool]:
        self._asking += 1
        self._watch.cancel()
        try:
            return await self._frames.take()
        finally:
            self._asking -= 1
            if not self._asking and not self._frames.is_over:
                self._watch = asyncio.get_running_loop().call_later(ABANDONED_S, self._abandon)

    def _abandon(self) -> None:
        self._task.cancel()
        self._forget()
