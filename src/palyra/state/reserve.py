"""Space taken before it is needed: what a full disk gives back, and the length of the log.

Touches: the two files. Not here: when the reserve is given back (state/sqlite), when the log grows (state/sqlite).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RESERVE_BYTES = 1 << 20
ROOM_TO_REFILL = 3 * RESERVE_BYTES
"""With less than that, a start leaves what there is to records of what has run."""
_CHUNK = 1 << 18


def refill_reserve(path: Path) -> None:
    """Space that is given back when the disk is full, so that calls which ran can still be closed. Not of zeros, for
    which a file system that compresses keeps none."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        if os.fstat(fd).st_size != RESERVE_BYTES:
            file.truncate()
            file.write(os.urandom(RESERVE_BYTES))
            file.flush()
            os.fsync(fd)


def restore_reserve(path: Path) -> None:
    """At a start: it was given back once, or a full disk cut it short. One that is still full is no reason to stop."""
    with contextlib.suppress(OSError):
        if _size(path) != RESERVE_BYTES and has_room(path.parent):
            refill_reserve(path)


def is_given(path: Path) -> bool:
    """Whether somebody gave it back on a full disk: what is left is for records of what has run."""
    return _size(path) < 0 and free_bytes(path.parent) < 2 * RESERVE_BYTES


def has_room(folder: Path) -> bool:
    """Whether a full disk has room again: for the reserve, and as much as a start wants beside it."""
    return free_bytes(folder) >= ROOM_TO_REFILL


def free_bytes(folder: Path) -> int:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return RESERVE_BYTES << 10  # whoever writes is told
    return disk.f_bavail * disk.f_frsize


def _size(path: Path) -> int:
    """-1 where there is none."""
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def fill_up(path: Path, length: int) -> None:
    """Lengthen a file with zeros, on disk when this returns; what it holds is not touched. Undone if it fails."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        try:
            for at in range(size, length, _CHUNK):
                os.pwrite(fd, bytes(min(_CHUNK, length - at)), at)
            os.fdatasync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)
