"""What launchers are given to read: one sealed file without a name for each text, kept for the next launch.

The files of a sandbox's /etc, its filter and its start program are the same for every call. Opening a kept file again
is one system call where making it is four, before the launcher can even be started; and whoever opens it again reads
from its start, whoever else is reading. Nobody can change what is in it (sealed).

Bounded in number and size; what is large is made anew. Gone at `close`, or with the executor.
"""

from __future__ import annotations

import contextlib
import os
import weakref

from palyra.launch import _os

MAX_FILES = 48
MAX_BYTES = 16 * 1024


class DataFiles:
    """One for each executor, used on its loop."""

    def __init__(self) -> None:
        self._kept: dict[bytes, int] = {}
        weakref.finalize(self, _close_all, self._kept)

    def open(self, data: bytes) -> int:
        """A descriptor that reads `data` from its start; the caller closes it."""
        if len(data) > MAX_BYTES:
            return _os.memory_file(data)
        kept = self._kept.get(data)
        if kept is None:
            while len(self._kept) >= MAX_FILES:
                os.close(self._kept.pop(next(iter(self._kept))))
            kept = self._kept[data] = _os.memory_file(data)
        return _os.opened_again(kept)

    def close(self) -> None:
        _close_all(self._kept)


def _close_all(kept: dict[bytes, int]) -> None:
    while kept:
        with contextlib.suppress(OSError):
            os.close(kept.popitem()[1])
