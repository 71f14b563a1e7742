"""What was looked at on the way to a program, so that looking again is only asking whether any of it has changed.

A trail holds every path whose status the answer depended on: names that were tried and are missing, links, folders, the
file. While each still has the status it had, the answer is the one it was. Of a folder counts what it is and who may
write it, not what else was put into it; of a file also its size and times, as in the cache of digests.

Touches the file system, reading only. Not here: finding a program (look), following links (look_links).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

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
    return any(_status(path) != status for path, status in trail)


def _status(path: str) -> Status:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    who = (found.st_mode, found.st_uid, found.st_gid, found.st_dev, found.st_ino)
    if stat.S_ISDIR(found.st_mode):
        return who
    return (*who, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
