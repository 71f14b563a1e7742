"""What launchers are given to read: one sealed file without a name for each text, kept for the next launch.

The files of a sandbox's /etc, its filter and its start program are the same for every call. Opening a kept file again
is one system call where making it is four, before the launcher can even be started; and whoever opens it again reads
from its start, whoever else is reading. While a launcher is busy they are opened for the next one. Nobody can change
what is in it (sealed).

Bounded in number and size; what is large is made anew. Gone at `close`, or with the executor. A descriptor is only a
number: where somebody else in this process closed it (a library that makes a daemon closes all of them) it may be any
file's by now, which must not be shown inside a sandbox. So it is looked at each time, and what is not ours is left.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
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
        self._ready: dict[bytes, _Kept] = {}
        """Opened again already, for the next launch."""
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._kept)
        weakref.finalize(self, _close_all, self._ready)

    def open(self, data: bytes) -> int:
        """A descriptor that reads `data` from its start; the caller closes it."""
        if len(data) > MAX_BYTES:
            return _os.memory_file(data)
        self._leave_to_parent()
        ready = self._ready.pop(data, None)
        if ready is not None and ready.is_ours:
            return ready.fd
        return _os.opened_again(self._keep(data).fd)

    def get_ready(self, texts: Sequence[bytes]) -> None:
        """While a launcher is busy: the next one will mostly be given the same. Only the last one's are kept ready;
        where there is no descriptor to spare, none."""
        self._leave_to_parent()
        for data in [data for data in self._ready if data not in texts]:
            _close(self._ready.pop(data))
        with contextlib.suppress(OSError):
            for data in texts:
                if len(data) <= MAX_BYTES and data not in self._ready:
                    kept = self._keep(data)
                    self._ready[data] = _Kept(_os.opened_again(kept.fd), kept.which)

    def _leave_to_parent(self) -> None:
        """After a fork: who reads one of these moves the other's position too, and that one finds an empty file."""
        if self._pid != os.getpid():
            _close_all(self._ready)
            self._pid = os.getpid()

    def _keep(self, data: bytes) -> _Kept:
        kept = self._kept.get(data)
        if kept is None or not kept.is_ours:
            self._kept.pop(data, None)
            while len(self._kept) >= MAX_FILES:
                _close(self._kept.pop(next(iter(self._kept))))
            fd = _os.memory_file(data)
            kept = self._kept[data] = _Kept(fd, _identity(fd))
        return kept

    def close(self) -> None:
        _close_all(self._kept)
        _close_all(self._ready)


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
