"""How many entries the journal had when the last commit was acknowledged, in a file beside the database.

A log that somebody deletes while nobody is connected, or an old database put where the new one lay, leaves a journal
that is sound and short; so does a disk that lost what it said it had. The number in the file is larger then. It is
written after each commit, once its callers were answered, and not forced to the disk: after a crash it may be old,
never too new. Whoever restores all of the folder restores the number too: against that stand receipts and witnesses.

Touches: that file. It is compared at every start and by every audit.
"""

from __future__ import annotations

import os
from pathlib import Path

from palyra.errors import StateError

NAME = "entries"
_FORM = b"%020d\n"
_LENGTH = 21
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe put there keeps nobody waiting


class Mark:
    def __init__(self, state: Path) -> None:
        self._path = state / NAME
        self._fd = -1

    def write(self, entries: int) -> None:
        """Nothing hangs on it but what is noticed later: an error is no reason to stop. A larger number stays: it is of
        a process that committed after this one, and wrote before it."""
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            if _parse(os.pread(self._fd, _LENGTH + 1, 0)) < entries:
                os.pwrite(self._fd, _FORM % entries, 0)
        except OSError:
            return

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_mark(state: Path) -> int:
    """0 where there is none. Read before the database: the other way round a commit in between would be missed."""
    try:
        with open(state / NAME, "rb", opener=_without_links) as file:
            return _parse(file.read(_LENGTH + 1))
    except OSError:
        return 0


def _parse(data: bytes) -> int:
    return int(data) if len(data) == _LENGTH and data[:-1].isdigit() else 0


def check_mark(state: Path, *, had: int, has: int) -> None:
    if has < had:
        raise StateError(
            f"The journal had {had} entries and has {has}: its log was removed, or an old copy was restored.",
            f"Restore the newer files. To continue without the missing entries: rm '{state / NAME}'",
        )


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | _FLAGS)
