"""Folders that are in use by a process: held with a shared lock, and removed only by who gets it alone.

The age of a folder does not tell whether somebody uses it: a machine that slept for days wakes up with calls that are
minutes old in folders that nobody has asked for since. A lock belongs to the open file and is gone with its holder,
however that ends.

Rules: who holds a folder looks whether its name still leads to it, because it may have been on its way out; a file
system without such locks holds nobody up, there the age alone decides. Not here: which folders, and when they are old.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


def hold(folder: str) -> int | None:
    """A descriptor to be closed when the folder is not needed any more; None where it is going, or gone."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if _lock(fd, fcntl.LOCK_SH) and is_at(fd, folder):
        return fd
    os.close(fd)
    return None


def is_at(fd: int, folder: str) -> bool:
    """Whether the name leads to what is held."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(folder, follow_symlinks=False))
    except OSError:
        return False


@contextlib.contextmanager
def alone(folder: str) -> Iterator[bool]:
    """Whether nobody holds it; and then nobody can, until the end."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield True  # a link or a file that may not be read: none of ours, and held by nobody
        return
    try:
        yield _lock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
