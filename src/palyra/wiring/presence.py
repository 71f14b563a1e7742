"""Touches: the home's lock file. Says that this process lives, to processes that cannot see its number.

Two containers with one home, or a container and its host, share the kernel and the file, and no /proc. So each process
holds a shared lock on one byte of the file, whose place follows from who it is; it is gone when its holder is, however
that ended. Others ask whether anybody holds it and take nothing. It belongs to the open file, so that several
installations of one process do not undo each other's; a fork closes that at once, and speaks for its parent no longer.
Where the file or such locks are not to be had nobody is seen.

Not here: processes of our own PID namespace, which are looked up by number (owners), turns to write (state/lock).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import weakref
from pathlib import Path

from palyra.model.record import Owner

_FLOCK = struct.Struct("hhqqi4x")
"""Of Linux, on 64-bit machines: kind, from where, start, length, pid."""
_IS_KNOWN = struct.calcsize("P") == 8
_SAY = getattr(fcntl, "F_OFD_SETLK", None) if _IS_KNOWN else None
_ASK = getattr(fcntl, "F_OFD_GETLK", None) if _IS_KNOWN else None


class Presence:
    def __init__(self, path: Path, me: Owner) -> None:
        self._fd = -1
        if _SAY is None:
            return
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            self._close = weakref.finalize(self, os.close, self._fd)
            _ALIVE.add(self)
            fcntl.fcntl(self._fd, _SAY, _lock(fcntl.F_RDLCK, me))

    def is_said(self, owner: Owner) -> bool:
        """Whether somebody holds this owner's place."""
        if self._fd < 0 or _ASK is None:
            return False
        try:
            found = fcntl.fcntl(self._fd, _ASK, _lock(fcntl.F_WRLCK, owner))
        except OSError:
            return False
        return int(_FLOCK.unpack(found)[0]) != fcntl.F_UNLCK

    def leave(self) -> None:
        """In a fork of whoever is there."""
        self._fd = -1
        self._close()


_ALIVE: weakref.WeakSet[Presence] = weakref.WeakSet()


def _leave_inherited() -> None:
    for presence in list(_ALIVE):
        with contextlib.suppress(OSError):
            presence.leave()
    _ALIVE.clear()


os.register_at_fork(after_in_child=_leave_inherited)


def _lock(kind: int, owner: Owner) -> bytes:
    who = f"{owner.boot_id} {owner.pid} {owner.start_ticks}".encode()
    place = int.from_bytes(hashlib.sha256(who).digest()[:8], "big") >> 2
    return _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0)
