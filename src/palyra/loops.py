"""Event loops of Palyra's own processes: one that goes on where the kernel grants a user no more epoll watches.

epoll's watches are counted by user (fs.epoll.max_user_watches), and the user of a sandboxed program is its engine's: a
few dozen processes of one call take all of them, and then no event loop of that user begins or accepts anything, not
even that of `palyra stop`. poll(2) needs none. So a loop begins with epoll, which costs less with many descriptors, and
goes over to poll when a watch is refused.

Not here: the loop of a program that embeds Palyra, which is its own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING or hasattr(selectors, "EpollSelector"):

    class SteadySelector(selectors.EpollSelector):
        def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
            try:
                return super().register(fileobj, events, data)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            return self._turn_to_poll().register(fileobj, events, data)

        def _turn_to_poll(self) -> selectors.BaseSelector:
            """For good: what is watched now is watched by poll, and every further question is its to answer."""
            polling = selectors.PollSelector()
            for key in tuple(self.get_map().values()):
                polling.register(key.fileobj, key.events, key.data)
            self.close()
            for name in ("register", "unregister", "modify", "select", "close", "get_key", "get_map"):
                setattr(self, name, getattr(polling, name))
            return polling


def new_loop() -> asyncio.AbstractEventLoop:
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    _check_descriptors()
    return asyncio.SelectorEventLoop(SteadySelector())


def _check_descriptors() -> None:
    """Raise where there are not three descriptors left: a loop half made writes a traceback when it is freed."""
    taken: list[int] = []
    try:
        taken += os.pipe()
        taken.append(os.dup(taken[0]))
    finally:
        for fd in taken:
            os.close(fd)


def run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run does."""
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(work)
    finally:
        work.close()  # where no loop could be made it never began, and Python warns of that
