"""Where a repository's settings say that its hooks are (`core.hooksPath`): mostly in the workspace itself.

Touches the file system, reading only. Rules: read as git reads it: bytes that are UTF-8 or not, `~` as the operator's
home, a relative path from the top of the files and not from where the repository lies (a submodule's in .git/modules, a
worktree's elsewhere). Each file is read once, while nothing about it changes: this is asked before and after each call.
Husky's `_/h` starts what lies beside that folder. What cannot be read leads nowhere.

Not here: what is closed (look_guarded), what of such settings is a program (gitconfig).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from palyra.guard.look_gitfile import Elsewhere, read_file
from palyra.values import dataclass

MAX_KNOWN = 1024
MAX_CONFIG_BYTES = 1 << 18
_FILES = ("config", "config.worktree")


@dataclass(frozen=True, slots=True)
class _Said:
    hooks: tuple[str, ...] = ()
    worktree: str = ""


_known: dict[str, tuple[tuple[int, ...], _Said]] = {}


def hooks_of(repository: str, files: str) -> Iterator[str]:
    """Absolute paths, links in them not followed. `files`: the top of its files, where its settings do not say so."""
    said = [_said_in(f"{repository}/{name}") for name in _FILES]
    for worktree in (one.worktree for one in said if one.worktree):
        files = os.path.join(repository, worktree)
    for path in (path for one in said for path in one.hooks):
        hooks = os.path.join(files, path).rstrip("/")
        yield hooks
        if hooks.endswith("/_") and os.path.lexists(f"{hooks}/h"):
            yield os.path.dirname(hooks)


def _said_in(config: str) -> _Said:
    try:
        seen = os.stat(config)
    except (OSError, ValueError):
        return _Said()
    which = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = _known.get(config)
    if known is None or known[0] != which:
        while len(_known) >= MAX_KNOWN:
            del _known[next(iter(_known))]
        known = _known[config] = which, _read(config, seen)
    return known[1]


def _read(config: str, seen: os.stat_result) -> _Said:
    if not stat.S_ISREG(seen.st_mode):
        return _Said()
    try:
        data = read_file(config, MAX_CONFIG_BYTES)
        if b"hookspath" not in data.lower():
            return _Said()
        from palyra.guard.gitconfig import read_settings

        told = [(section, key, os.fsdecode(value.encode("latin-1"))) for section, key, value in read_settings(data)]
    except (Elsewhere, ValueError):
        return _Said()
    hooks = tuple(_expanded(value) for section, key, value in told if (section, key) == ("core", "hookspath"))
    worktrees = [value for section, key, value in told if (section, key) == ("core", "worktree")]
    return _Said(tuple(path for path in hooks if path and "\0" not in path), (worktrees or [""])[-1].split("\0")[0])


def _expanded(value: str) -> str:
    path = value.removeprefix(":(optional)")
    return os.path.expanduser(path) if path.startswith("~") else path
