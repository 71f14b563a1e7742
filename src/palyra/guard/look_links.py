"""Where a path on the disk really ends, link by link, in a bounded number of steps.

Touches the file system, reading only. Links are followed component by component, at most 40, a dangling link to its
target too; devices and descriptors of the program itself (/dev/stdin) are not followed. Links of /proc lead each
process elsewhere (`/proc/self/cwd/..` is ours here and the program's there), so a path that takes one ends at it.
Beyond something missing the rest is taken by its text. What
a guarded name comes to is asked here too: a file or a folder that can be closed, or nothing; the links on the way there
are remembered, and a folder into which we may not look. Not here: what is looked at (look), what it means (facts).
"""

from __future__ import annotations

import os
import stat
from dataclasses import field
from functools import cache

from palyra.guard.paths import inside, is_device
from palyra.values import dataclass

MAX_LINKS = 40
MAX_FOLDERS = 2000
MAX_STEPS = 20_000
MAX_ENTRIES = 200_000
MAX_INCLUDED = 1024
GUARDED_STEPS = 60_000
"""For what stays closed: hundreds of submodules, each with folders of hooks to look for."""
MAX_CONFIG_BYTES = 8 << 20
USER_STEPS = 100
"""For a question to the list of users, which may lie on another machine."""
PROC_SELF = "/proc/self"
TOO_MANY = "The workspace's .git has too many submodules or worktrees to be protected."
FEWER = (
    "Each submodule or repository in it counts for two or three (hooks, config, .git). Take out submodules that nobody "
    "needs (git submodule deinit NAME, then remove .git/modules/NAME), or name a folder of it as the workspace: "
    "--workspace DIR at a terminal."
)


@dataclass(frozen=True, slots=True)
class End:
    path: str
    exists: bool
    links: tuple[str, ...]
    left: tuple[str, ...] = ()
    """Folders that `..` led out of: with a link in the place of one it would lead elsewhere."""


@dataclass(slots=True)
class Allowance:
    """Steps left for one look: 39 links of 4 KB each, spelled 400 ways, would hold everybody up for half a minute."""

    steps: int = MAX_STEPS
    folders: int = MAX_FOLDERS
    entries: int = MAX_ENTRIES
    """Names that folders may hold in all: a folder with a million files would hold everybody up, before every call."""
    included: int = MAX_INCLUDED
    """Files that git's settings may include in all."""
    config_bytes: int = MAX_CONFIG_BYTES
    """Of git's settings in all: an agent can fill each of 1000 nested repositories with them."""
    configs: set[str] = field(default_factory=set)
    """Files of settings that are counted in that."""
    problem: str = ""
    unclosable: str = ""
    """Why a program that may write there cannot be kept from what must stay closed."""
    remedy: str = ""
    """What to do about either, where that is not to take another workspace."""
    homes: tuple[str, ...] = ()
    """`~` to whoever uses git in the workspace; that of who runs this, where none is named."""
    owners: tuple[int, ...] = ()
    """Who they are, beside root and who runs this."""
    hooks_everywhere: tuple[str, ...] = ()
    """What settings that hold for every repository say of where its hooks are."""
    shut: set[str] = field(default_factory=set)
    """Folders of a workspace that we may not look into."""
    links: set[str] = field(default_factory=set)
    """On the way to what is guarded, in the workspace or not: whoever makes one anew leads its readers elsewhere."""
    left: set[str] = field(default_factory=set)
    """Folders on the way there that `..` led out of."""
    guarded: set[str] = field(default_factory=set)
    """Paths with a guarded name that were found."""
    created: frozenset[str] = frozenset()
    """Those of them that the run created itself, which stay open to it."""
    untold: set[str] = field(default_factory=set)
    """Links under a guarded name that close nothing, and lead back into the workspace all the same."""

    def remember(self, end: End) -> None:
        self.links.update(end.links)
        self.left.update(end.left)

    def is_created(self, path: str) -> bool:
        """Note a guarded path; return True when it stays open, because the run created it."""
        self.guarded.add(path)
        return path in self.created

    def step(self, count: int) -> bool:
        self.steps -= count
        if self.steps < 0:
            self.problem = self.problem or "The paths lead through too many folders and links to be checked."
        return self.steps >= 0

    def include(self, problem: str, remedy: str) -> bool:
        self.included -= 1
        if self.included < 0:
            self.refuse(problem, remedy)
        return self.included >= 0

    def read(self, config: str, size: int, problem: str, remedy: str) -> bool:
        if config not in self.configs:
            self.configs.add(config)
            self.config_bytes -= size
        if self.config_bytes < 0:
            self.refuse(problem, remedy)
        return self.config_bytes >= 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is found anyway: the call is refused."""
        return self.steps < 0 or self.included < 0 or self.config_bytes < 0

    def refuse(self, problem: str, remedy: str = "") -> None:
        """The first one is told."""
        if not self.problem:
            self.problem, self.remedy = problem, remedy

    def enter(self) -> bool:
        self.folders -= 1
        if self.folders < 0:
            self.refuse(TOO_MANY, FEWER)
        return self.folders >= 0


@cache
def _proc_device() -> int:
    """Wherever it is mounted; -1 on a system without one."""
    try:
        return os.lstat(PROC_SELF).st_dev
    except OSError:
        return -1


def follow_links(text: str, base: str, allowance: Allowance | None = None, *, visited: list[str] | None = None) -> End:
    """Where a path ends. `base` is a real path; beyond something missing the rest is taken by its text. `visited` gets
    every place that was asked about."""
    allowance = allowance or Allowance()
    current = "/" if text.startswith("/") else base
    parts = text.split("/")[::-1] if allowance.step(text.count("/") + 1) else []
    links: list[str] = []
    left: list[str] = []
    missing = not parts
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == ".." and current.startswith("/dev/fd"):
            return End(PROC_SELF, exists=True, links=tuple(links))
        if part == "..":
            if not missing:
                left.append(current)
            current, missing = os.path.dirname(current), False
            continue
        current = f"{current.rstrip('/')}/{part}"
        if missing or (current.startswith("/dev") and is_device(current)):
            missing = missing or current == "/dev/fd"
            continue
        if visited is not None:
            visited.append(current)
        try:
            seen = os.lstat(current)
            is_link = stat.S_ISLNK(seen.st_mode)
            target = os.readlink(current) if is_link else ""
        except (OSError, ValueError):
            missing = True
            continue
        if is_link and seen.st_dev == _proc_device():
            return End(current, exists=True, links=(*links, current))
        if is_link:
            links.append(current)
            if len(links) > MAX_LINKS or not allowance.step(target.count("/") + 1):
                missing = True
                continue
            current = "/" if target.startswith("/") else os.path.dirname(current)
            parts += target.split("/")[::-1]
    return End(current, not missing, tuple(links), tuple(left))


def settle(workspace: str, name: str, allowance: Allowance) -> tuple[str, str]:
    """("file" | "folder" | "", real path) of something in the workspace; "" when missing, special or leading out, and
    the workspace when it is that."""
    if name.startswith(f"{workspace}/"):  # which is real: nothing on the way there is a link
        name = name[len(workspace) :].lstrip("/")
    end = follow_links(name, workspace, allowance)
    allowance.remember(end)
    is_told = end.links and (end.path == workspace or end.path.startswith("/proc/"))
    if is_told and not name.startswith(".env"):  # a crowd to hide the others among, and a folder is no such file
        allowance.untold.add(os.path.join(workspace, name))
    if end.path == workspace or not inside(workspace, end.path):
        return "", workspace if end.path == workspace and allowance.steps >= 0 else ""
    if not end.exists:
        is_there(end.path, allowance)
        return "", ""
    kind = kind_of(mode_of(end.path, allowance))
    return kind, end.path if kind else ""


def is_there(path: str, allowance: Allowance) -> bool:
    """Whether something has this name, a link too."""
    return mode_of(path, allowance) != 0


def mode_of(path: str, allowance: Allowance) -> int:
    """0 where nothing has this name. Where we may not know, the folder that hides it is shut."""
    try:
        return os.lstat(path).st_mode
    except PermissionError:
        allowance.shut.add(nearest(path))
    except (OSError, ValueError):
        pass
    return 0


def kind_of(mode: int) -> str:
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else ""


def nearest(path: str) -> str:
    """The innermost folder on the way there that can be seen: what is in it cannot."""
    while path != "/":
        path = os.path.dirname(path)
        if os.path.lexists(path):
            break
    return path
