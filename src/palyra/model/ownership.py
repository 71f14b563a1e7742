"""Who else could write a file we are about to believe, judged from what `stat` says. Pure: the caller looks.

Rules: a file and the folders it lies in belong to us or to root, and neither their group nor others may write them;
links are followed first, because a link into a folder of everyone's is everyone's file. "Not there" is said only of a
name that nothing bears: a dangling link, a folder or a FIFO in its place is something that somebody put there, and
taking it for "none" would drop every rule an operator wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Protocol

_FOLDER, _KIND = 0o040000, 0o170000
_OTHERS, _GROUP, _STICKY = 0o002, 0o020, 0o1000


class Stat(Protocol):
    @property
    def st_mode(self) -> int: ...

    @property
    def st_uid(self) -> int: ...


Look = Callable[[PurePath], Stat]


def is_absent(path: PurePath, lstat: Look, stat: Look) -> bool:
    """True when nothing bears this name. OSError when that cannot be told, also for a dangling link on the way."""
    try:
        lstat(path)
    except FileNotFoundError:
        return path.parent == path or is_absent(path.parent, lstat, stat) or bool(stat(path.parent))
    return False


def writable_by(found: Stat, *, own_uid: int, above: bool = False) -> str | None:
    """Who else may write it, as the subject of a sentence. `above`: a folder on the way, where sticky is enough."""
    if found.st_uid not in (0, own_uid):
        return f"Another user (uid {found.st_uid})"
    if above and found.st_mode & _STICKY and found.st_mode & _KIND == _FOLDER:
        return None  # as in /tmp: others may add names there, but neither replace nor rename ours
    if found.st_mode & _OTHERS:
        return "Everyone on this machine"
    return "Its group" if found.st_mode & _GROUP else None


def folders_above(resolved: PurePath, top: PurePath) -> tuple[PurePath, ...]:
    """From the folder that holds `resolved` up to `top`; up to the root when a link led out of `top`."""
    parents = tuple(resolved.parents)
    return parents[: parents.index(top) + 1] if top in parents else parents
