"""Touches: the file system. The workspace of a run, resolved once: its name must go on meaning the same folder.

A link that somebody but root made may be an agent's: it could lead a later run to the operator's home. Such a path is
refused with the real one in the hint. Links of root's (/tmp on some systems) are followed.
"""

from __future__ import annotations

import os
import stat

from palyra.errors import Reason, Rejected


def resolve_workspace(path: str | os.PathLike[str]) -> str:
    try:
        absolute = os.path.abspath(path)
        real = os.path.realpath(absolute)
        if real != absolute and any(_is_foreign_link(part) for part in _parts(absolute)):
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                "The workspace's path goes through a link that does not belong to root.",
                f"Name the folder itself: {real}",
            )
    except (OSError, ValueError, TypeError) as error:
        raise Rejected(
            Reason.BAD_ARGUMENTS, f"The workspace cannot be used: {error}.", "Name another folder."
        ) from error
    return real


def _parts(path: str) -> list[str]:
    pieces = path.strip("/").split("/")
    return ["/" + "/".join(pieces[: count + 1]) for count in range(len(pieces))]


def _is_foreign_link(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) and found.st_uid != 0
