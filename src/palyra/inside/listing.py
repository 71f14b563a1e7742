"""Lists folders of a workspace: sorted by name, in pages, the same order every time.

A recursive listing goes depth first; links are shown and never entered, `.git` is shown and not entered. A cursor is
the last path of a page, so that a listing goes on where it stopped even when files came and went in between.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Iterator
from typing import Any

from palyra.inside import beneath

DEFAULT_ENTRIES = 200
MAX_DEPTH = 128
MAX_SCANNED = 500_000
"""Names looked at in one call."""
MAX_ANSWER_CHARS = 512 << 10
"""Of all names in one page: paths can be longer than any buffer."""
UNENTERED = (b".git",)

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Walk:
    """Every entry below a folder in a fixed order. `scanned` and `cut` say how far it came."""

    def __init__(self, *, recursive: bool) -> None:
        self._recursive = recursive
        self.scanned = 0
        self.cut = False
        """Something was not entered: too deep, too many, or closed to us."""

    def entries(self, folder: int, after: tuple[bytes, ...] = (), depth: int = 0) -> Iterator[tuple[list[bytes], int]]:
        """(path from the first folder, descriptor of the folder it is in); only what comes `after` that path."""
        for name in self._names(folder):
            if after and name < after[0]:
                continue
            seen = bool(after) and name == after[0]
            if not seen:
                yield [name], folder
            if self._recursive and name not in UNENTERED:
                yield from self._enter(folder, name, after[1:] if seen else (), depth)

    def _enter(
        self, folder: int, name: bytes, after: tuple[bytes, ...], depth: int
    ) -> Iterator[tuple[list[bytes], int]]:
        try:
            below = beneath.open_beneath(folder, (name,), os.O_RDONLY | os.O_DIRECTORY, links=False)
        except OSError:
            return
        try:
            if depth >= MAX_DEPTH:
                self.cut = True
                return
            for path, where in self.entries(below, after, depth + 1):
                yield [name, *path], where
        finally:
            os.close(below)

    def _names(self, folder: int) -> list[bytes]:
        names: list[bytes] = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    self.scanned += 1
                    if self.scanned > MAX_SCANNED:
                        raise beneath.Refused(
                            "TOO_MANY", f"There are more than {MAX_SCANNED} names; list a part of it."
                        )
                    names.append(os.fsencode(entry.name))
        except OSError:
            self.cut = True
        return sorted(names)


def list_folder(root: int, asked: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    parts = beneath.split(asked.get("path", "."), request["workspace"])
    folder = beneath.open_folder(root, parts)
    most = asked.get("max_entries", DEFAULT_ENTRIES)
    walk = Walk(recursive=asked.get("recursive", False))
    entries: list[dict[str, Any]] = []
    following = cursor = None
    size = 0
    for path, where in walk.entries(folder, _position(asked.get("cursor", ""))):
        if len(entries) == most or size > MAX_ANSWER_CHARS:
            following = cursor
            break
        entry = describe(where, path[-1])
        if entry is not None:
            name = beneath.shown(b"/".join((*parts, *path)))
            entry = {"path": name, **entry, **({"hidden": True} if name in request["hidden"] else {})}
            entries.append(entry)
            size += len(name) + len(entry.get("target", ""))
        cursor = base64.urlsafe_b64encode(b"/".join(path)).decode("ascii")
    return {"path": asked.get("path", "."), "entries": entries, "next": following, "incomplete": walk.cut}


def _position(cursor: str) -> tuple[bytes, ...]:
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii"))
    except (ValueError, binascii.Error):
        raise beneath.Refused("BAD_CURSOR", "This cursor did not come from a listing.") from None
    return tuple(raw.split(b"/")) if raw else ()


def describe(folder: int, name: bytes) -> dict[str, Any] | None:
    """What stands there now; None when it went away meanwhile."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        entry: dict[str, Any] = {"type": _KINDS.get(stat.S_IFMT(found.st_mode), "other")}
        if entry["type"] == "file":
            entry |= {"size_bytes": found.st_size, "executable": bool(found.st_mode & 0o111)}
        elif entry["type"] == "link":
            entry["target"] = beneath.shown(os.readlink(name, dir_fd=folder))
    except OSError:
        return None
    if not _is_text(name):
        entry["encoding"] = "utf-8-replaced"
    return entry


def _is_text(name: bytes) -> bool:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
