"""Touches: files that somebody began to write and did not live to finish, in the home and in the folder for trials.

What Palyra writes it writes beside its place, under a name that begins with a dot and ends with the writer's pid or
random digits, and renames it. So a name of that shape is one that nobody reads; it is left alone while its writer lives
and for an hour after its last byte. A pid that was given to somebody else meanwhile only makes it stay longer.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from palyra.launch.removing import remove_tree

_DEPTH = 5
_PARTIAL = re.compile(
    r"\.(?:.*\.)?(?:(?P<pid>[0-9]{1,10})-[0-9a-f]{16}|(?P<part>[0-9]{1,10})\.part|[0-9a-f]{16}|part)|\.probe-\w+"
)
_NEW_STATE = re.compile(r"state\.new-[0-9a-f]{16}")
_TRIALS = ("palyra-probe-", "palyra-build-")


def find_partial_files(home: Path, *, before_unix_s: float) -> list[tuple[str, int]]:
    """(path, bytes) of each below the home."""
    found = [*_below(str(home), before_unix_s, _DEPTH)]
    if (home / "state").is_dir():  # otherwise one of them may be about to become it
        with os.scandir(home) as entries:
            found += [
                (entry.path, 0)
                for entry in entries
                if _NEW_STATE.fullmatch(entry.name) and _is_old(entry, before_unix_s, stat.S_ISDIR)
            ]
    return sorted(found)


def _below(folder: str, before_unix_s: float, depth: int) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        return
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _below(entry.path, before_unix_s, depth - 1)
        elif (name := _PARTIAL.fullmatch(entry.name)) and _is_old(entry, before_unix_s, stat.S_ISREG):
            pid = name["pid"] or name["part"]
            if pid is None or not _exists(int(pid)):
                yield entry.path, entry.stat(follow_symlinks=False).st_size


def find_trial_folders(*, before_unix_s: float) -> list[str]:
    """What a probe or a build that was killed left in the folder for temporary files; only our own user's."""
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            return sorted(
                entry.path
                for entry in entries
                if entry.name.startswith(_TRIALS) and _is_old(entry, before_unix_s, stat.S_ISDIR)
            )
    except OSError:
        return []


def _is_old(entry: os.DirEntry[str], before_unix_s: float, is_kind: Callable[[int], bool]) -> bool:
    try:
        seen = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return is_kind(seen.st_mode) and seen.st_uid == os.geteuid() and max(seen.st_mtime, seen.st_ctime) < before_unix_s


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}") or not os.path.isdir("/proc/self")


def remove_path(path: str) -> bool:
    """A file or a folder of ours; False when it would not go."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            return remove_tree(path)
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
