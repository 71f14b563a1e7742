"""What is left of sandboxes that have ended: their mount namespaces, empty of processes, held open by us alone.

The last to let go of a mount namespace makes the kernel take its mounts apart, and waits for it. Left to the sandbox's
first process that is most of what ending a call takes; so the engine holds on until the call is answered, and lets go a
moment later, on a thread that has nothing else to do. Nothing can enter such a namespace but by this descriptor.

Not here: the end of the processes, which is waited for (ending).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref

LET_GO_AFTER_S = 0.005


class Leftovers:
    """One for each executor, used on its loop. Gone at `close`, or with the executor."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._fds)

    def keep(self, fd: int) -> None:
        if self._pid != os.getpid():  # a fork: what is in the list is its copy of the parent's
            _close_all(self._fds)
            self._pid, self._timer = os.getpid(), None
        self._fds.append(fd)
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.cancelled() or self._timer.when() < loop.time():
            self._timer = loop.call_later(LET_GO_AFTER_S, self._let_go, loop)

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        fds = self._fds[:]
        del self._fds[:]
        loop.run_in_executor(None, _close_all, fds)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _close_all(self._fds)


def _close_all(fds: list[int]) -> None:
    while fds:
        with contextlib.suppress(OSError):
            os.close(fds.pop())
