"""Did every mount inside the workspace land where the plan put it? Judged from a held sandbox's own mount table.

A launcher resolves paths inside the workspace twice: what to mount, and where. A program of another call that
runs in the same workspace can swap a folder for a link in between, and the sandbox would get ~/.ssh, writable,
in place of `.git`, or lose its read-only `.git/hooks`. Nobody can win that race against this check: it reads
the finished table of a sandbox in which nothing has run yet, and a sandbox that differs is thrown away.

Not here: reading the table, comparing the workspace itself with the host's (launch/held).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from palyra.model.plan import Word

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    ident: str
    parent: str
    device: str
    root: str
    """Which folder of its filesystem it shows."""
    point: str
    options: frozenset[str]
    kind: str


@dataclass(frozen=True, slots=True)
class Expected:
    point: str
    shows_itself: bool
    """A bind of a path onto itself; otherwise an empty tmpfs or a file of the launcher's own."""
    read_only: bool


def workspace_of(launcher: Sequence[Word]) -> str:
    """The one writable bind comes first; all later ones lie inside it."""
    at = launcher.index("--bind")
    return str(launcher[at + 2])


def first_difference(launcher: Sequence[Word], mountinfo: str) -> str:
    """A sentence about the first mount that is not as planned, or an empty string."""
    table = parse_mountinfo(mountinfo)
    by_ident = {mount.ident: mount for mount in table}
    covered = {mount.parent for mount in table if mount.point == _point_of(by_ident, mount.parent)}
    on_top = {mount.point: mount for mount in table if mount.ident not in covered}
    for expected in expected_mounts(launcher):
        mount = on_top.get(expected.point)
        if mount is None:
            return f"{expected.point} is not covered as planned"
        if expected.read_only and "ro" not in mount.options:
            return f"{expected.point} is not read-only"
        if expected.shows_itself and not _shows_itself(mount, by_ident):
            return f"{expected.point} shows {mount.root} of another place"
        if not expected.shows_itself and mount.kind != "tmpfs":
            return f"{expected.point} is not hidden"
    return ""


def expected_mounts(launcher: Sequence[Word]) -> tuple[Expected, ...]:
    """What steps 9 and 10 of the bubblewrap plan ask for, except the workspace itself."""
    words = launcher[launcher.index("--bind") + 3 :]
    found = []
    for at, word in enumerate(words):
        match word:
            case "--bind":
                found.append(Expected(str(words[at + 2]), shows_itself=True, read_only=False))
            case "--ro-bind":
                found.append(Expected(str(words[at + 2]), shows_itself=True, read_only=True))
            case "--ro-bind-data":
                found.append(Expected(str(words[at + 2]), shows_itself=False, read_only=True))
            case "--tmpfs":
                found.append(Expected(str(words[at + 1]), shows_itself=False, read_only=True))
            case _:
                continue
    return tuple(found)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        ident, parent, device, root, point, options = fields[:6]
        kind = fields[fields.index("-") + 1]
        mounts.append(
            Mount(ident, parent, device, _unescape(root), _unescape(point), frozenset(options.split(",")), kind)
        )
    return tuple(mounts)


def _shows_itself(mount: Mount, by_ident: dict[str, Mount]) -> bool:
    below = by_ident.get(mount.parent)
    if below is None or below.device != mount.device:
        return False
    inner = posixpath.relpath(mount.point, below.point)
    return posixpath.normpath(posixpath.join(below.root, inner)) == mount.root


def _point_of(by_ident: dict[str, Mount], ident: str) -> str | None:
    mount = by_ident.get(ident)
    return None if mount is None else mount.point


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
