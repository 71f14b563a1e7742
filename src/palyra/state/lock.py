"""A file lock that many processes take in turn, each for one commit.

`flock` belongs to the open file: it is gone when its holder dies, two writers in one process exclude each other, and
waiting never blocks an event loop because taking it is a try. A forked child drops the inherited file at once,
otherwise it would keep alive a lock that its parent died with.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import weakref
from pathlib import Path

from palyra.errors import StateError

FIRST_PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.008
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class NoLocks(StateError):
    """Some network file systems have none: two processes would write at once."""


class FileLock:
    def __init__(self, path: Path) -> None:
        """`path` is a file that exists, or a folder."""
        self._path = path
        self._fd = -1
        _ALIVE.add(self)

    def try_acquire(self) -> bool:
        if self._fd < 0:
            # A pipe in its place would keep whoever opens it waiting for a writer.
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            hint = "Its file system keeps no locks: name a --home on a local one."
            raise NoLocks(f"{self._path} cannot be locked: {error.strerror}.", hint) from error
        return True

    def acquire(self, patience_s: float) -> bool:
        """Wait for it, asleep between tries; for threads that have nothing else to do."""
        deadline, pause_s = time.monotonic() + patience_s, FIRST_PAUSE_S
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
        return True

    def release(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_ALIVE: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _drop_inherited() -> None:
    for lock in list(_ALIVE):
        with contextlib.suppress(OSError):
            lock.close()


os.register_at_fork(after_in_child=_drop_inherited)
