"""One look at every folder of a workspace: numbers, sizes and times of its entries, never their content.

Touches the file system, reading only. Bounded by entries, depth and time, because an agent decides how much there is to
see. Folders are opened below the one that named them, without following links, and never on another file system: a
folder swapped for a link while we look shows nothing of where it leads. Not here: comparing two looks (model/changes).
"""

from __future__ import annotations

import os
import stat
from time import monotonic
from typing import Final

from palyra.model.changes import Snapshot, Stamp

MAX_ENTRIES: Final = 20_000
MAX_DEPTH: Final = 32
MAX_SECONDS: Final = 0.5
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look_at_workspace(
    workspace: str, *, max_entries: int = MAX_ENTRIES, max_depth: int = MAX_DEPTH, max_seconds: float = MAX_SECONDS
) -> Snapshot:
    walk = _Walk(max_entries, max_depth, monotonic() + max_seconds)
    try:
        fd = os.open(workspace, _FOLDER)
    except OSError:
        return Snapshot(whole=False)
    try:
        walk.device = os.fstat(fd).st_dev
        walk.enter(fd, "", 0)
    finally:
        os.close(fd)
    return Snapshot(folders=walk.folders, whole=walk.whole)


class _Walk:
    def __init__(self, entries: int, depth: int, deadline: float) -> None:
        self.folders: dict[str, dict[str, Stamp]] = {}
        self.whole = True
        self.device = 0
        self._left = entries
        self._depth = depth
        self._deadline = deadline

    def enter(self, fd: int, path: str, depth: int) -> None:
        found = self._list(fd)
        if found is None:
            self.whole = False
            return
        self.folders[path] = {_text(name): stamp for name, stamp in found.items()}
        for name, stamp in found.items():
            if stat.S_ISDIR(stamp[0]):
                self._go_down(fd, name, f"{path}/{_text(name)}" if path else _text(name), depth + 1)

    def _go_down(self, parent: int, name: str, path: str, depth: int) -> None:
        try:
            fd = os.open(name, _FOLDER, dir_fd=parent)
        except OSError:
            self.whole = False
            return
        try:
            if depth > self._depth or os.fstat(fd).st_dev != self.device:
                self.whole = False
            else:
                self.enter(fd, path, depth)
        finally:
            os.close(fd)

    def _list(self, fd: int) -> dict[str, Stamp] | None:
        """Every entry with its stamp; None when there was no more room or time for all of them."""
        found: dict[str, Stamp] = {}
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0 or monotonic() > self._deadline:
                        return None
                    found[entry.name] = _stamp(entry.stat(follow_symlinks=False))
        except OSError:
            return None
        return found


def _stamp(seen: os.stat_result) -> Stamp:
    if stat.S_ISDIR(seen.st_mode):
        return (seen.st_mode, seen.st_ino, seen.st_uid)
    return (seen.st_mode, seen.st_ino, seen.st_uid, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _text(name: str) -> str:
    """Names are bytes to the kernel; what is not UTF-8 is spelled out, because records are text."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
