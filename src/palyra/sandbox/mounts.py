"""Did every mount land where the plan put it, and none elsewhere? Judged from a blocked sandbox's own mount table.

A launcher resolves paths inside the workspace twice: what to mount, and where. A program of another call that
runs in the same workspace can swap a folder for a link in between, and the sandbox would get ~/.ssh, writable,
in place of `.git`, lose its read-only `.git/hooks`, or get a folder of the attacker's over /usr/bin. Nobody can win
that race against this check: the launcher waits, its mounts finished and nothing exec'd, until the whole table was
read; a sandbox with a mount too many, too few or of another place is thrown away before its first instruction.

Not here: reading the table, comparing the workspace itself with the host's (launch/held).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from palyra.late import late
from palyra.model.plan import Word
from palyra.values import dataclass

Closed: TypeAlias = Sequence[tuple[str, str]]
"""(kind, path): see ProcessPlan.closed."""

Lines: TypeAlias = tuple[str, ...]
"""Of a mount table."""

OWNED_BY_ROOT = ("/proc", *(f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")))
"""What a sandbox shows of the host on mounts that can be written, and is root's: the machine's devices, and the files
of the kernel, which are the same in every /proc. A program that keeps uid 0 owns them, and would change their modes and
owners for the whole machine (`chmod 0 /dev/null`), until its next start; so for that one they are read-only mounts."""

_ESCAPE = late(r"\\([0-7]{3})")


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
    or_itself: bool = False
    """The launcher's own, or where the kernel does not let that be, the path itself, read-only."""
    or_nothing: bool = False
    """Where the kernel mounts nothing over a link, it stays as it is."""


def workspace_of(launcher: Sequence[Word]) -> str:
    """Where the workspace is inside: the one writable bind; where it is read-only too, the bind just before the root is
    sealed."""
    return str(launcher[_workspace_word(launcher)])


def workspace_source(launcher: Sequence[Word]) -> str:
    """The host's folder that is shown there: the same path, unless a node of a cluster made a copy."""
    return str(launcher[_workspace_word(launcher) - 1])


def _workspace_word(launcher: Sequence[Word]) -> int:
    if "--bind" in launcher:
        return launcher.index("--bind") + 2
    seals = (at for at, word in enumerate(launcher) if word == "--remount-ro" and launcher[at + 1] == "/")
    return next(seals) - 1


def first_difference(closed: Closed, mountinfo: str, before: str = "") -> str:
    """A sentence about the first mount that is not as planned, or an empty string. `before`: the table of the same
    sandbox as it was judged last. Who makes a link anew takes away what the kernel had mounted over it."""
    if not closed:
        return ""
    table = parse_mountinfo(mountinfo)
    by_ident = {mount.ident: mount for mount in table}
    covered = {mount.parent for mount in table if mount.point == _point_of(by_ident, mount.parent)}
    on_top = {mount.point: mount for mount in table if mount.ident not in covered}
    had = {mount.point for mount in parse_mountinfo(before)} if before else frozenset[str]()
    for expected in expected_mounts(closed):
        mount = on_top.get(expected.point)
        if mount is None and expected.or_nothing and expected.point not in had:
            continue
        if mount is None:
            return f"{expected.point} is not covered as planned"
        if expected.read_only and "ro" not in mount.options:
            return f"{expected.point} is not read-only"
        if expected.shows_itself and not _shows_itself(mount, by_ident):
            return f"{expected.point} shows {mount.root} of another place"
        shown = expected.shows_itself or (expected.or_itself and _shows_itself(mount, by_ident))
        if not shown and mount.kind != "tmpfs":
            return f"{expected.point} is not hidden"
    return ""


def first_unsealed(points: Sequence[str], mountinfo: str) -> str:
    """A sentence about the first of these mounts that is not read-only, or not there; or an empty string."""
    sealed = {mount.point for mount in _parse(_unnumbered(mountinfo)) if "ro" in mount.options}
    return next((f"{point} is not read-only" for point in points if point not in sealed), "")


def is_finished(mountinfo: str) -> bool:
    """The launcher has left its old root: from here on it makes no mount any more."""
    return _is_finished(_unnumbered(mountinfo))


@lru_cache(maxsize=8)
def _is_finished(lines: Lines) -> bool:
    table = _parse(lines)
    if any(mount.point.startswith(("/newroot", "/oldroot")) for mount in table):
        return False
    roots = [mount for mount in table if mount.point == "/"]  # for a moment the old one lies over the new one
    return len(roots) == 1 and "ro" in roots[0].options


def first_stranger(launcher: Sequence[Word], mountinfo: str, host_mountinfo: str, closed: Closed = ()) -> str:
    """A sentence about the first mount that was not planned, or an empty string. `closed`: what was mounted over since.

    Below a bound folder the host's own mounts come along; /dev and /proc hold what the launcher puts there itself.
    """
    plan = planned_mounts(launcher) + tuple((path, "") for _, path in closed)
    return _first_stranger(plan, _unnumbered(mountinfo), _unnumbered(host_mountinfo))


def follows_host(mountinfo: str) -> bool:
    """Whether what the host mounts from now on appears inside, too, below whatever is shown of it."""
    return " master:" in mountinfo  # blanks in names are spelled out


@lru_cache(maxsize=16)
def _first_stranger(plan: tuple[tuple[str, str], ...], lines: Lines, host_lines: Lines) -> str:
    planned = Counter(point for point, _ in plan)
    folders = [(point, source) for point, source in plan if source]
    on_host = {mount.point for mount in _parse(host_lines)}
    for mount in _parse(lines):
        point = mount.point
        if planned[point] > 0:
            planned[point] -= 1
        elif point == "/" or _is_launchers_own(mount):
            continue
        elif not any(_comes_along(point, folder, source, on_host) for folder, source in folders):
            return f"something was mounted over {point}"
    return ""


def planned_mounts(launcher: Sequence[Word]) -> tuple[tuple[str, str], ...]:
    """(where, what is shown there) of every mount the launcher was told to make; "" where it is made anew."""
    return _planned(tuple(launcher))


@lru_cache(maxsize=64)
def _planned(launcher: tuple[Word, ...]) -> tuple[tuple[str, str], ...]:
    found = []
    for at, word in enumerate(launcher):
        match word:
            case "--bind" | "--ro-bind" | "--ro-bind-try":
                found.append((str(launcher[at + 2]), str(launcher[at + 1])))
            case "--ro-bind-data":
                found.append((str(launcher[at + 2]), ""))
            case "--tmpfs" | "--proc" | "--dev":
                found.append((str(launcher[at + 1]), ""))
            case _:
                continue
    return tuple(found)


def _is_launchers_own(mount: Mount) -> bool:
    in_dev = mount.point.startswith("/dev/") and mount.kind in ("devtmpfs", "tmpfs", "devpts", "mqueue")
    return in_dev or (mount.point.startswith("/proc/") and mount.kind in ("proc", "tmpfs", "devtmpfs"))


def _comes_along(point: str, folder: str, source: str, on_host: set[str]) -> bool:
    return point.startswith(folder.rstrip("/") + "/") and source + point[len(folder) :] in on_host


def expected_mounts(closed: Closed) -> tuple[Expected, ...]:
    """What closing parts of the workspace must have left in the table."""
    return tuple(
        Expected(
            path,
            shows_itself=kind in ("parent", "protected", "link"),
            read_only=kind != "parent",
            or_itself=kind == "copied",
            or_nothing=kind == "link",
        )
        for kind, path in closed
    )


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    return _parse(tuple(_lines(text)))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]  # not splitlines: a name may hold a form feed or U+2028


@lru_cache(maxsize=4)
def _unnumbered(text: str) -> Lines:
    """The same without the numbers that the kernel gives anew to each sandbox: what is judged without them is judged
    once for all sandboxes that look the same."""
    return tuple("0 0 0:0 " + line.split(" ", 3)[3] for line in _lines(text))


@lru_cache(maxsize=8)
def _parse(lines: Lines) -> tuple[Mount, ...]:
    """Remembered: the host's table seldom changes, and a sandbox's is looked at several times while it waits."""
    mounts = []
    for line in lines:
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
    above = below.point.rstrip("/")
    if not f"{mount.point}/".startswith(f"{above}/"):
        return False
    return (below.root.rstrip("/") + mount.point[len(above) :] or "/") == mount.root


def _point_of(by_ident: dict[str, Mount], ident: str) -> str | None:
    mount = by_ident.get(ident)
    return None if mount is None else mount.point


def _unescape(text: str) -> str:
    return text if "\\" not in text else _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
