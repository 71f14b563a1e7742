"""Decides which guarded paths of a workspace a run created itself, and so may change.

A path is the run's own when its file or folder was born during one of the run's calls, under a name that did not exist
when that call began, and nothing in it has changed since the run's last call ended. The kernel's birth and change times
say so: no program can set either.

Invariants:
- A link, a mount point and a file system that keeps no birth times are never the run's own, nor is what holds one.
- A `.git` that is a file is the run's own only while the repository that it names is unchanged too.
- A path that was closed to a call is not the run's own after it: the operator's editor may have replaced the file.
- A change between two calls, by the operator or by another run, closes the path for the rest of the run.

Attacks: an older folder renamed or hard-linked into place, a reused inode, a mount over the path, a repository that the
operator has configured or committed to since. What the operator changes while a call runs counts as the call's change.

Not here: finding guarded paths (look_guarded), keeping stamps (wiring/created_paths).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

from palyra.guard.paths import inside
from palyra.model.sights import MAX_CREATED, WorkspaceSight
from palyra.values import dataclass

MAX_ENTRIES = 4096
"""Files in all of them together. A path that goes beyond is closed."""
MAX_DEPTH = 32
_AT_FDCWD, _NO_FOLLOW, _NO_AUTOMOUNT = -100, 0x100, 0x800
_BASIC, _BIRTH = 0x7FF, 0x800
_IS_MOUNT = 0x2000
_LAYOUT = struct.Struct("=IIQIIIHxxQQQQqIiqIiqIiqIi4I")
_NS = 10**9


@dataclass(frozen=True, slots=True)
class _Status:
    mode: int
    identity: tuple[int, int, int]
    """Device, inode, time of birth."""
    rest: tuple[int, ...]


class _NotOurs(Exception):
    """This file says that the path is not the run's own."""


def still_created(workspace: str, created: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return those whose stamps still fit."""
    walk = _Walk(workspace)
    return tuple((path, said) for path, said in created if inside(workspace, path) and walk.stamp(path) == said)


def stamp_created(workspace: WorkspaceSight, found: Sequence[str], *, during_unix_ms: range) -> Mapping[str, str]:
    """Return the stamps of those guarded paths that are the run's own after a call, which ran in that time."""
    walk, before = _Walk(workspace.path), dict(workspace.created)
    known = {said.rpartition(":")[0] for said in before.values()}
    closed = set(workspace.guarded) - set(before)
    stamps: dict[str, str] = {}
    for path in found:
        if path in closed or len(stamps) >= MAX_CREATED:
            continue
        said = walk.stamp(path)
        identity = said.rpartition(":")[0]
        if said and (identity in known or _born_ms(identity) in during_unix_ms):
            stamps[path] = said
    return stamps


def _born_ms(identity: str) -> int:
    return int(identity.rpartition(":")[2]) // 10**6


class _Walk:
    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._left = MAX_ENTRIES

    def stamp(self, path: str) -> str:
        """Return `device:inode:birth:digest`, the digest over the status of all that is in it; empty when it is not
        a plain file or folder, or is more than is walked."""
        try:
            top = _status(path)
            digest = hashlib.sha256()
            for entry in self._below(path, b"", top, is_repository=_is_repository(path)):
                digest.update(entry)
            if os.path.basename(path) == ".git" and stat.S_ISREG(top.mode):
                for entry in self._led_to(path):
                    digest.update(entry)
        except (OSError, ValueError, AttributeError, _NotOurs):  # AttributeError: a C library without statx
            return ""
        return ":".join(map(str, (*top.identity, digest.hexdigest())))

    def _below(self, path: str, name: bytes, seen: _Status, *, is_repository: bool) -> Iterator[bytes]:
        self._left -= 1
        is_plain = stat.S_ISREG(seen.mode) or stat.S_ISDIR(seen.mode)
        if self._left < 0 or name.count(b"/") > MAX_DEPTH or not is_plain:
            raise _NotOurs
        yield name + b"\0" + repr((seen.mode, *seen.identity, *seen.rest)).encode()
        # Objects are data and may be many. Nothing obeys them, and a commit changes files beside them.
        if not stat.S_ISDIR(seen.mode) or (is_repository and name.endswith(b"/objects")):
            return
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in islice(entries, self._left + 1))
        for inner in names:
            below = f"{path}/{inner}"
            yield from self._below(below, name + b"/" + os.fsencode(inner), _status(below), is_repository=is_repository)

    def _led_to(self, file: str) -> Iterator[bytes]:
        """The repository that a `.git` file names: who works in it changes nothing in the file."""
        from palyra.guard.look_gitfile import Elsewhere, git_folder

        try:
            folder = git_folder(file)
        except Elsewhere as error:
            raise _NotOurs from error
        if not folder or folder == self._workspace or not inside(self._workspace, folder):
            raise _NotOurs
        yield os.fsencode(folder)
        yield from self._below(folder, b"", _status(folder), is_repository=True)


def _is_repository(path: str) -> bool:
    return os.path.basename(path) == ".git" or os.path.basename(os.path.dirname(path)) == "worktrees"


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _status(path: str) -> _Status:
    """Raises `_NotOurs` for a mount point, and where the file system keeps no time of birth."""
    data = ctypes.create_string_buffer(256)
    flags, name = _NO_FOLLOW | _NO_AUTOMOUNT, os.fsencode(path)
    if _libc().statx(_AT_FDCWD, name, ctypes.c_int(flags), ctypes.c_uint(_BASIC | _BIRTH), data):
        raise OSError(ctypes.get_errno(), path)
    (mask, _, attributes, links, uid, gid, mode, inode, size, _, known, _, _, _, birth_s, birth_ns, _, *times) = (
        _LAYOUT.unpack_from(data)
    )
    change_s, change_ns, _, modified_s, modified_ns, _, _, _, major, minor = times
    if not mask & _BIRTH or not known & _IS_MOUNT or attributes & _IS_MOUNT:
        raise _NotOurs
    rest = (links, uid, gid, size, change_s * _NS + change_ns, modified_s * _NS + modified_ns)
    return _Status(mode, (os.makedev(major, minor), inode, birth_s * _NS + birth_ns), rest)
