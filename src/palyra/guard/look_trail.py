"""What was looked at on the way to a program, so that looking again is only asking whether any of it has changed.

A trail holds every path whose status the answer depended on: names that were tried and are missing, links, folders, the
file. While each still has the status it had, the answer is the one it was. Of a folder counts what it is and who may
write it, not what else was put into it; of a file also its size and times, as in the cache of digests.

Touches the file system, reading only. Not here: finding a program (look), following links (look_links).
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterable
from operator import attrgetter, itemgetter

_F_SETSIG = 10
Status = tuple[int, ...] | None
Trail = tuple[tuple[str, Status], ...]


def take_trail(paths: Iterable[str]) -> Trail:
    """Of these paths and of every folder above them."""
    wanted: dict[str, None] = {}
    for path in paths:
        while path not in wanted:
            wanted[path] = None
            path = os.path.dirname(path)  # noqa: PLW2901  # "/" is its own
    return tuple((path, _status(path)) for path in wanted)


def has_changed(trail: Trail) -> bool:
    """`_status` of each, written out: it is asked of ten paths before every call."""
    for path, status in trail:
        try:
            found = os.lstat(path)
        except (OSError, ValueError):
            if status is not None:
                return True
            continue
        # What was a folder and is one no longer has another mode, and the other way round.
        if status is None or (_who(found) if len(status) == _WHO else _who(found) + _which(found)) != status:
            return True
    return False


def _status(path: str) -> Status:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    who: tuple[int, ...] = _who(found)
    return who if stat.S_ISDIR(found.st_mode) else who + _which(found)


_who = itemgetter(stat.ST_MODE, stat.ST_UID, stat.ST_GID, stat.ST_DEV, stat.ST_INO)
_which = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns")
_WHO = 5


def has_writers(descriptor: int) -> bool:
    """Whether somebody has this file open for writing, or mapped so: what is stored through a mapping that was there
    before changes neither time. The kernel grants no read lease then. False also where it does not say: of a file that
    is another user's, and on file systems without leases."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)  # who opens it meanwhile: not SIGIO, which would end us
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
