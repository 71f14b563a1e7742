"""Does a sandbox show what was planned? Asked of the kernel while it waits, before and after its shell is ready.

What is compared are identities (device and inode) reached without following a link, and the sandbox's own mount table.
Once verified only the host can change what it shows, so a sandbox from the pool is asked for that alone.

Not here: what a table must hold (sandbox/mounts), when it is asked (held, pool).
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from palyra.launch.host_files import is_unchanged
from palyra.launch.identity import granted_identity, identity_of, stat_inside
from palyra.launch.waiting import has_ended
from palyra.sandbox.mounts import first_difference, parse_mountinfo, planned_mounts, workspace_of
from palyra.sandbox.view import EMPTY_FILE, ETC, SYSTEM, is_within
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.launch.held import Held, Template
    from palyra.model.plan import Word

Identified: TypeAlias = "tuple[str, tuple[int, int] | None]"
"""A path of the host, and which folder it was: its device and inode."""


def is_as_planned(held: Held, template: Template) -> bool:
    """Still alive and still showing what was planned. On the host a folder may have been renamed since it was made:
    the mounts then went with the old name, and a new `.git` would stand there unprotected.

    Only what the host can have changed is asked for again. Inside nothing has run but our shell, so its workspace is
    the folder that was verified: is that still what the host has under this name? The same of granted folders and the
    program's own: the digest that is attested was taken of what the host has there now. And a mount table of the same
    bytes is judged as it was judged before."""
    try:
        if has_ended(held.program_fd) or (held.shown and held.shown != shown_folders(template)):
            return False
        if not template.pid_namespace:
            return not difference(held, template, held.program)
        if held.workspace != identity_of(template.workspace_source) or not is_unchanged(held.host_files):
            return False
        # Where no part of the workspace is closed nothing is looked up in the table.
        same = not template.closed or held.table == mountinfo(held.program)
        return same or not difference(held, template, held.program)
    except OSError:
        return False


def shows_same_mounts(held: Held, template: Template) -> bool:
    """Whether the host's mounts below the folders that are shown, and those they lie on, are as they were when the
    sandbox was made: one that was made read-only since is writable in there still."""
    return _around(template, held.host_table) == _around(template, mountinfo(os.getpid()))


def _around(template: Template, table: str) -> list[tuple[str, str, str, str, frozenset[str]]]:
    sources = [source for _, source in planned_mounts(template.launcher) if source]
    mounts = parse_mountinfo(table)
    return [
        (mount.device, mount.root, mount.point, mount.kind, mount.options)
        for mount in mounts
        if any(is_within(mount.point, source) or is_within(source, mount.point) for source in sources)
    ]


def shown_folders(template: Template) -> tuple[Identified, ...]:
    """Which they are now: folders of the host beside the system's and the workspace that a program is shown."""
    if template.landlock is not None:
        folders, granted = template.landlock.runnable, template.landlock.granted
    elif not template.pid_namespace:
        return ()  # a plain child without Landlock: it sees the host's files, by their names, when it opens them
    else:
        folders, granted = _shown_as_themselves(template.launcher), template.granted
    return tuple(
        (folder, _identity(folder, is_granted=folder in granted)) for folder in folders if folder not in SYSTEM
    )


@lru_cache(maxsize=64)
def _shown_as_themselves(launcher: tuple[Word, ...]) -> tuple[str, ...]:
    binds, workspace = planned_mounts(launcher), workspace_of(launcher)
    own = (point for point, source in binds if point == source and point != workspace)
    return tuple(point for point in own if not point.startswith(("/etc/", "/proc/")))


def _identity(folder: str, *, is_granted: bool) -> tuple[int, int] | None:
    try:
        if is_granted:
            return identity_of(folder)
        found = os.stat(folder)  # links followed, as a launcher does
    except OSError:
        return None
    return found.st_dev, found.st_ino


def difference(held: Held, template: Template, pid: int, table: str = "") -> str:
    """A sentence about what is not as planned, or an empty string; then exactly what was judged is remembered. `table`:
    its mount table, where it was read a moment ago."""
    if template.landlock is not None and identity_of(template.landlock.writable) != held.workspace:
        return f"{template.landlock.writable} is another folder now"
    if not template.pid_namespace:
        return ""
    table, workspace = table or mountinfo(pid), workspace_of(template.launcher)
    shown = stat_inside(pid, workspace)
    found = first_difference(template.closed, table, held.table)
    if not found and identity_of(template.workspace_source) != shown:
        found = f"{workspace} is another folder inside"
    if not found:
        held.table, held.workspace = table, shown
    return found


def in_new_root(held: Held, template: Template) -> bool:
    """Whether the launcher stands in its new root, where a file of ours is. Only a hint of when to look: reading its
    mount table again and again would hold up the launcher, which wants to change it."""
    return ETC not in template.launcher or os.path.exists(f"/proc/{held.init}/root{EMPTY_FILE}")


def mountinfo(pid: int) -> str:
    # newline: a carriage return in a folder's name is no end of a line.
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return file.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the host has, looked up while the launcher is busy: what changes on it afterwards differs from inside."""

    table: str
    """The host's own mount table."""
    places: tuple[tuple[str, tuple[int, int]], ...]
    """(where it is shown, which it is) of every folder and file of the host outside the workspace."""


def look_outside(template: Template) -> Outside:
    workspace = workspace_of(template.launcher)
    places = []
    for point, source in planned_mounts(template.launcher):
        if source and not is_within(point, workspace) and not point.startswith(("/proc", "/dev")):
            if source in template.granted:  # one that is not there at this moment may be a link in the next
                places.append((point, granted_identity(source)))
                continue
            with contextlib.suppress(FileNotFoundError):  # --ro-bind-try of what is not there
                found = os.stat(source)  # links followed, as the launcher does
                places.append((point, (found.st_dev, found.st_ino)))
    return Outside(table=mountinfo(os.getpid()), places=tuple(places))


def misplaced(pid: int, outside: Outside) -> str:
    """Every folder and file of the host that is shown outside the workspace must be the very one that was granted."""
    for point, which in outside.places:
        with contextlib.suppress(FileNotFoundError):
            if stat_inside(pid, point) != which:
                return f"{point} shows another place"
    return ""
