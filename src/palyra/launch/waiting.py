"""Waiting for a descriptor or for work that must not be cut short, on the running loop. Nothing else."""

from __future__ import annotations

import asyncio
import select
import time
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


async def readable_within(fd: int, timeout_s: float, *, or_done: asyncio.Future[None] | None = None) -> bool:
    """The same for a limited time, or until another future is done; False when neither came. One future and no task:
    a call waits here for its program, and every turn of the loop is part of its latency."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    came = False

    def settle(_: object = None) -> None:
        nonlocal came
        came = True
        _settle(ready)

    timer = loop.call_later(timeout_s, _settle, ready)
    loop.add_reader(fd, settle)
    if or_done is not None:
        or_done.add_done_callback(settle)
    try:
        await ready
    finally:
        timer.cancel()
        loop.remove_reader(fd)
        if or_done is not None:
            or_done.remove_done_callback(settle)
    return came


def has_ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd is gone already."""
    return readable_in(pidfd, 0.0)


def readable_in(fd: int, timeout_s: float) -> bool:
    """Whether there is something to read, or the end, after a moment that is waited for here, in this thread: for waits
    that are shorter than the loop's own turns, where nobody else needs the loop."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


ends_within = readable_in
"""The same of the process behind a pidfd."""


def is_collected_within(pidfd: int, collector_fd: int, timeout_s: float) -> bool:
    """Whether a process ends within a moment and its parent, behind the other pidfd, has collected it, so that its end
    can be told; or that parent ends. Where the kernel tells only of the latter it comes a little later."""
    poll = select.poll()
    poll.register(pidfd, 0)  # POLLHUP comes unasked, and only then
    poll.register(collector_fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def pause(seconds: float) -> None:
    """In this thread: for a moment that the loop's clock, which counts milliseconds, cannot tell."""
    time.sleep(seconds)


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
        over: asyncio.Future[None] = task.get_loop().create_future()
        task.add_done_callback(lambda _, over=over: _settle(over))  # type: ignore[misc]
        try:
            await over
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # seen, so that the loop does not complain; the cancellation says more
        try:
            raise cancelled
        finally:
            del cancelled  # its traceback holds this frame: a reference cycle that keeps the whole call
    return task.result()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
