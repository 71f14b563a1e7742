"""A call under way, and how it is ended before its time.

A call walks in its caller's own task: a task of its own would cost each call three turns of the loop. So two kinds of
cancellation reach it, and are told apart by how often the task was asked to end. The caller's own goes on after the
record is closed; the engine's (`Engine.cancel`, the end of a run) is the call's alone, and is taken back from the task
before its caller goes on. Whichever comes, the record is closed: what closes it is never cut short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Live:
    __slots__ = ("_ended", "_task", "call_id", "cancelled")

    def __init__(self, task: asyncio.Task[Any], call_id: str) -> None:
        self._task = task
        self._ended: asyncio.Future[None] | None = None
        self.call_id = call_id
        self.cancelled = False
        """By the engine, not by its caller."""

    def cancel(self) -> bool:
        """Once: what is asked a second time must not disturb how it ends."""
        if not self.cancelled:
            self.cancelled = True
            self._task.cancel()
        return True

    async def take_cancellation_back(self) -> None:
        """Also one that came too late to be noticed, which would end the caller at its next wait."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        self._task.uncancel()

    def end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def ended(self) -> asyncio.Future[None]:
        self._ended = self._ended or asyncio.get_running_loop().create_future()
        return self._ended


async def stop_all(calls: Sequence[Live]) -> None:
    """A cancellation of whoever waits here waits until the records are closed."""
    ended = [call.ended() for call in calls]
    for call in calls:
        call.cancel()
    for future in ended:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])


async def finish_whatever_comes(work: Awaitable[T]) -> T:
    """Closing a record is never cut short: a second cancellation waits until it is durable."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    return task.result()
