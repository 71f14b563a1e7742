"""Where a launcher is: bubblewrap or a container's client, which run on the host, outside of every sandbox.

The operator's search path is for programs that run inside. A folder on it may lie in a workspace (`node_modules/.bin`,
`.venv/bin`), and an agent that puts a `bwrap` there would have it run as the operator when Palyra starts next, and
every wall attested that it claims to have made. So a launcher comes from the system's own folders, which are never a
workspace; from another only where root alone can change it and we are not root, because what is root's own is what
root's sandboxes may write.

Touches the file system, reading only. Not here: whether what was found isolates (probe_bwrap, probe_container), how
programs are found (guard/look).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from palyra.values import dataclass

TOOLS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
_MAX_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    path: str = ""
    """Empty where there is none."""
    passed_over: str = ""
    """The first of that name that an agent could have made or changed."""


def find_launcher(name: str, search_path: Sequence[str]) -> Launcher:
    passed_over = ""
    for folder in (*search_path, *TOOLS):
        path = os.path.join(folder, name)
        if not os.path.isabs(folder) or not os.path.isfile(path) or not os.access(path, os.X_OK):
            continue
        if folder.rstrip("/") in TOOLS or _is_out_of_reach(path):
            return Launcher(path=path, passed_over=passed_over)
        passed_over = passed_over or path
    return Launcher(passed_over=passed_over)


def _is_out_of_reach(path: str) -> bool:
    """Of agents, wherever their workspaces are. Systems without owners by number start no sandbox in this version."""
    return not hasattr(os, "getuid") or (os.getuid() != 0 and is_roots_alone(path))


def is_roots_alone(path: str) -> bool:
    """Nobody else can change it, a folder on the way to it, or a link that leads there."""
    for _ in range(_MAX_LINKS):
        holds, further = _walk(path)
        if not holds or not further:
            return holds
        path = further
    return False


def _walk(path: str) -> tuple[bool, str]:
    """Whether all is root's as far as the first link, and where that leads; empty where there is none."""
    above, parts = "/", path.strip("/").split("/")
    for at, part in enumerate(parts):
        here = os.path.join(above, part)
        try:
            found = os.lstat(here)
            if found.st_uid != 0:
                return False, ""
            if stat.S_ISLNK(found.st_mode):
                return True, os.path.join(above, os.readlink(here), *parts[at + 1 :])
        except OSError:
            return False, ""
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # what is root's in it stays
        if found.st_mode & 0o022 and not sticky:
            return False, ""
        above = here
    return True, ""


def why_passed_over(name: str, path: str) -> tuple[str, str]:
    """A sentence, and what to do."""
    return (
        f"{path} is not used: an agent could have put it there, and {name} runs outside of every sandbox.",
        f"Install {name} with the system's package manager, or have root put it into /usr/local/bin.",
    )
