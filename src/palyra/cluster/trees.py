"""Workspaces by digest: what a folder holds, made anew elsewhere, and what a call changed in it brought back.

Rules: links are carried as links and never followed, on the way out and on the way back: each folder is opened below
the one that named it, because a program beside us may swap it for a link. What is neither file, folder nor link stays
where it is; names are relative, without a step up; a tree is bounded in files and bytes. Bringing back writes each file
beside its place and renames it there. Two calls that change the same file: the later one wins, as in any folder they
share.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from palyra.canon import canonical, sha256_hex
from palyra.cluster.blobs import Blobs
from palyra.errors import StateError

MAX_ENTRIES = 50_000
MAX_DEPTH = 256
"""A folder that is looked through has a descriptor, and a program makes a thousand within each other in no time."""
MAX_FILE_BYTES = 256 << 20
MAX_BYTES = 1 << 30
MAX_TREE_BYTES = 64 << 20
SMALL = 64
"""So many entries are looked at without a thread: it would cost more."""
_COARSE = 5
"""CLOCK_REALTIME_COARSE, which files are stamped by; Python has no name for it."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

Node = list[Any]
"""["d", mode] · ["l", target] · ["f", mode, sha256]"""
Tree = Mapping[str, Node]


def take(
    folder: Path,
    blobs: Blobs,
    known: dict[str, tuple[tuple[int, ...], Node]] | None = None,
    others: list[str] | None = None,
) -> Tree:
    """The folder as it is. `known` remembers files by their place and times, so that they are read once; `others` is
    told what is neither file, folder nor link."""
    tree: dict[str, Node] = {}
    left = [MAX_BYTES]
    # What the kernel would stamp now: a file that bears this time could change again and bear it still.
    now_ns = time.clock_gettime_ns(_COARSE)
    for one in _entries(folder):
        if len(tree) >= MAX_ENTRIES:
            raise StateError(
                f"The workspace has more than {MAX_ENTRIES} entries; it cannot be sent to another machine."
            )
        name, seen = one.name, one.seen
        _check_name(name)
        if stat.S_ISDIR(seen.st_mode):
            tree[name] = ["d", stat.S_IMODE(seen.st_mode)]
        elif stat.S_ISLNK(seen.st_mode):
            tree[name] = ["l", os.readlink(one.last, dir_fd=one.parent)]
        elif stat.S_ISREG(seen.st_mode):
            tree[name] = _take_file(f"{folder}/{name}", one, blobs, left, known, now_ns)
        elif others is not None:
            others.append(name)
    return tree


def is_same(folder: Path, tree: Tree, known: Mapping[str, tuple[tuple[int, ...], Node]], *, most: int) -> bool:
    """Whether a small folder is what it was when it was taken, told by its times alone: nothing is read. False also
    where that cannot be told."""
    if len(tree) > most:
        return False
    with suppress(StateError):
        return _is_same(folder, tree, known, most)
    return False


def _is_same(folder: Path, tree: Tree, known: Mapping[str, tuple[tuple[int, ...], Node]], most: int) -> bool:
    count = 0
    for one in _entries(folder):
        node, seen = tree.get(one.name), one.seen
        count += 1
        if node is None or count > most:
            return False
        mode = stat.S_IMODE(seen.st_mode)
        if stat.S_ISDIR(seen.st_mode):
            same = node == ["d", mode]
        elif stat.S_ISLNK(seen.st_mode):
            same = node == ["l", os.readlink(one.last, dir_fd=one.parent)]
        else:
            same = stat.S_ISREG(seen.st_mode) and known.get(f"{folder}/{one.name}") == (_times(seen, mode), node)
        if not same:
            return False
    return count == len(tree)


def _times(seen: os.stat_result, mode: int) -> tuple[int, ...]:
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, mode)


@dataclass(slots=True)
class _Entry:
    name: str
    """From the top of the folder."""
    seen: os.stat_result
    parent: int
    """Descriptor of the folder it lies in, open as long as this entry is looked at."""
    last: str


def _entries(folder: Path) -> Iterator[_Entry]:
    root = os.open(folder, _OPEN | os.O_DIRECTORY)
    try:
        yield from _walk(root, "")
    finally:
        os.close(root)


def _walk(folder: int, above: str) -> Iterator[_Entry]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name, seen = above + entry.name, entry.stat(follow_symlinks=False)
            yield _Entry(name, seen, folder, entry.name)
            if stat.S_ISDIR(seen.st_mode):
                if name.count("/") >= MAX_DEPTH:
                    raise StateError(
                        f"The workspace has folders more than {MAX_DEPTH} deep; it cannot be sent to another machine.",
                        "Remove them, or run it where the daemon is.",
                    )
                inner = _open(entry.name, folder, os.O_DIRECTORY)
                try:
                    yield from _walk(inner, f"{name}/")
                finally:
                    os.close(inner)


def _open(name: str, parent: int, flags: int) -> int:
    """What was seen a moment ago, or StateError: something else stands there now."""
    try:
        return os.open(name, _OPEN | flags, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise StateError(
                "The workspace was changed while it was read.", "Repeat the call when nothing else writes there."
            ) from error
        raise


def _take_file(
    place: str,
    one: _Entry,
    blobs: Blobs,
    left: list[int],
    known: dict[str, tuple[tuple[int, ...], Node]] | None,
    now_ns: int,
) -> Node:
    seen, mode = one.seen, stat.S_IMODE(one.seen.st_mode)
    left[0] -= seen.st_size
    if seen.st_size > MAX_FILE_BYTES or left[0] < 0:
        raise StateError("The workspace is too large to be sent to another machine.", "Run it where the daemon is.")
    times = _times(seen, mode)
    if known is not None and place in known and known[place][0] == times:
        return known[place][1]
    with os.fdopen(_open(one.last, one.parent, os.O_NONBLOCK), "rb") as file:
        node: Node = ["f", mode, blobs.put(file.read(MAX_FILE_BYTES))]
    if known is not None and max(seen.st_ctime_ns, seen.st_mtime_ns) < now_ns:
        known[place] = (times, node)
    return node


def digest_of(tree: Tree) -> str:
    return sha256_hex(canonical(dict(tree)))


NOTHING = digest_of({})
"""What changed, where nothing did: nobody has to keep it."""


def keep(tree: Tree, blobs: Blobs) -> str:
    return blobs.put(canonical(dict(tree)))


def read(sha256: str, blobs: Blobs) -> dict[str, Node]:
    """A tree that somebody kept; `StateError` for one that names a place outside."""
    value = orjson.loads(blobs.get(sha256, most_bytes=MAX_TREE_BYTES))
    if not isinstance(value, dict) or len(value) > MAX_ENTRIES:
        raise StateError("This is not a tree.")
    for name, node in value.items():
        _check_name(name)
        fits = isinstance(node, list) and len(node) == {"d": 2, "l": 2, "f": 3, "-": 1}.get(node[0] if node else "", 0)
        if not fits:
            raise StateError("This is not a tree.")
    return value


def changes(before: Tree, after: Tree) -> dict[str, Node]:
    """What is new or other, and `["-"]` for what is gone."""
    written = {name: node for name, node in after.items() if before.get(name) != node}
    return written | {name: ["-"] for name in before if name not in after}


def write(tree: Tree, folder: Path, blobs: Blobs, *, owner: tuple[int, int] | None = None) -> None:
    """Bring `tree` (or changes) into the folder: what is gone goes first, deepest first; then folders before what they
    hold."""
    root, left = os.open(folder, _OPEN | os.O_DIRECTORY), [MAX_BYTES]
    try:
        for name in sorted(tree, reverse=True):
            if tree[name][0] == "-":
                with suppress(FileNotFoundError, NotADirectoryError), _parent(root, name) as (parent, last):
                    _remove(parent, last)
        for name in sorted(tree):
            if tree[name][0] != "-":
                _write_one(root, name, tree[name], blobs, owner, left)
    finally:
        os.close(root)


def _write_one(root: int, name: str, node: Node, blobs: Blobs, owner: tuple[int, int] | None, left: list[int]) -> None:
    with _parent(root, name) as (parent, last):
        if node[0] == "d":
            _make_folder(parent, last, int(node[1]))
        else:
            temporary = f".palyra-{os.urandom(8).hex()}"
            if node[0] == "l":
                os.symlink(str(node[1]), temporary, dir_fd=parent)
            else:
                data = blobs.get(str(node[2]), most_bytes=min(MAX_FILE_BYTES, left[0]))
                left[0] -= len(data)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=parent), "wb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), int(node[1]) & 0o777)
            with suppress(NotADirectoryError, FileNotFoundError, OSError):
                os.rmdir(last, dir_fd=parent)  # an empty folder in its place; a full one is refused by the rename
            os.rename(temporary, last, src_dir_fd=parent, dst_dir_fd=parent)
        if owner is not None:
            os.chown(last, *owner, dir_fd=parent, follow_symlinks=False)


def _make_folder(parent: int, last: str, mode: int) -> None:
    try:
        os.mkdir(last, 0o700, dir_fd=parent)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(last, dir_fd=parent)
            os.mkdir(last, 0o700, dir_fd=parent)
    fd = os.open(last, _OPEN | os.O_DIRECTORY, dir_fd=parent)
    try:
        os.fchmod(fd, mode & 0o777)
    finally:
        os.close(fd)


def _remove(parent: int, last: str) -> None:
    with suppress(FileNotFoundError):
        try:
            os.unlink(last, dir_fd=parent)
        except (IsADirectoryError, PermissionError):
            with suppress(OSError):
                os.rmdir(last, dir_fd=parent)


@contextmanager
def _parent(root: int, name: str) -> Iterator[tuple[int, str]]:
    """The folder a name lies in, reached without following any link."""
    *folders, last = name.split("/")
    fd = os.dup(root)
    try:
        for folder in folders:
            inner = os.open(folder, _OPEN | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd, last
    finally:
        os.close(fd)


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise StateError(f"{name[:80]!r} is not a path inside a workspace.")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StateError("A file name in the workspace is not UTF-8; it cannot be sent to another machine.") from error
