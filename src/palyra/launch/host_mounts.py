"""Whether the host has mounted or unmounted anything: the kernel tells whoever has the table of mounts open.

A sandbox that waits shows the mounts there were when it was made, and none that came since: a volume that was mounted
in the workspace meanwhile would be missing from it, and what a program writes there would lie hidden below it.

One question costs one system call, and no reading of the table. Not here: which mounts matter (verifying).
"""

from __future__ import annotations

import os
import select
import weakref

_TABLE = "/proc/self/mountinfo"


class HostMounts:
    """One for each pool; `close` ends it, and asking again begins anew."""

    def __init__(self) -> None:
        self._open: list[int] = []
        self._poll = select.poll()
        self._pid = 0
        self._changes = 0
        weakref.finalize(self, _close_all, self._open)

    def changes(self) -> int:
        """A number that is another one after any change. Where there is no telling, another one each time."""
        if not self._open or self._pid != os.getpid():  # of a fork's table its parent takes the news
            self._begin()
        elif self._poll.poll(0):
            self._changes += 1
        return self._changes

    def _begin(self) -> None:
        self.close()
        self._changes += 1
        try:
            self._open.append(os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return
        self._pid = os.getpid()
        self._poll.register(self._open[0], select.POLLPRI)

    def close(self) -> None:
        self._poll = select.poll()
        _close_all(self._open)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
