"""Space taken before it is needed: what a full disk gives back, and the length of the log.

Touches: the two files. Not here: when the reserve is given back (state/sqlite), when the log grows (state/sqlite).
"""

from __future__ import annotations

import os
from pathlib import Path

RESERVE_BYTES = 1 << 20
_CHUNK = 1 << 18


def refill_reserve(path: Path) -> None:
    """Space that is given back when the disk is full, so that calls which ran can still be closed."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        if os.fstat(fd).st_size != RESERVE_BYTES:
            file.write(bytes(RESERVE_BYTES))
            file.flush()
            os.fsync(fd)


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
