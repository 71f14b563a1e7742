"""What launchers are given to read: one sealed file without a name for each text, kept for the next launch.

The files of a sandbox's /etc, its filter and its start program are the same for every call. Opening a kept file again
is one system call where making it is four, before the launcher can even be started; and whoever opens it again reads
from its start, whoever else is reading. Nobody can change what is in it (sealed).

Bounded in number and size; what is large is made anew. Gone at `close`, or with the executor. A descriptor is only a
number: where somebody else in this process closed it (a library that makes a daemon closes all of them) it may be any
file's by now, which must not be shown inside a sandbox. So it is looked at each time, and what is not ours is left.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import NamedTuple

from palyra.launch import _os

MAX_FILES = 48
MAX_BYTES = 16 * 1024


class _Kept(NamedTuple):
    fd: int
    which: tuple[int, int]
    """(device, inode) of the file it was opened for."""

    @property
    def is_ours(self) -> bool:
        return _identity(self.fd) == self.which


class DataFiles:
    """One for each executor, used on its loop."""

    def __init__(self) -> None:
        self._kept: dict[bytes, _Kept] = {}
        weakref.finalize(self, _close_all, self._kept)

    def open(self, data: bytes) -> int:
        """A descriptor that reads `data` from its start; the caller closes it."""
        if len(data) > MAX_BYTES:
            return _os.memory_file(data)
        kept = self._kept.get(data)
        if kept is None or not kept.is_ours:
            self._kept.pop(data, None)
            while len(self._kept) >= MAX_FILES:
                _close(self._kept.pop(next(iter(self._kept))))
            fd = _os.memory_file(data)
            kept = self._kept[data] = _Kept(fd, _identity(fd))
        return _os.opened_again(kept.fd)

    def close(self) -> None:
        _close_all(self._kept)


def _identity(fd: int) -> tuple[int, int]:
    try:
        found = os.fstat(fd)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino


def _close(kept: _Kept) -> None:
    if kept.is_ours:
        with contextlib.suppress(OSError):
            os.close(kept.fd)


def _close_all(kept: dict[bytes, _Kept]) -> None:
    while kept:
        _close(kept.popitem()[1])
