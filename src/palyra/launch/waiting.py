"""Waiting for a descriptor or for work that must not be cut short, on the running loop. Nothing else."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def readable(fd: int) -> None:
    """Until there is something to read, or the end: of a pipe, or of the process behind a pidfd."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def has_ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd is gone already."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


async def writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even when the waiting task is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # seen, so that the loop does not complain; the cancellation says more
        raise cancelled
    return task.result()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
