"""Files of a repository that lead git elsewhere, read as git reads them: `.git` as a file, `commondir`.

Touches the file system, reading only. Rules: a path in such a file keeps its blanks and ends where a text of C's does,
or a folder of that odd name is git's and nobody looked into it. What leads through /proc leads each process elsewhere
(`/proc/self/cwd` is the workspace to git, and to us wherever we work), and what is neither file nor folder says
something else to each who reads: of those nothing is known, and `Elsewhere` is raised for whoever asks to take as the
worst. Not here: what follows for a call (look_git), what is closed (look_guarded).
"""

from __future__ import annotations

import os
import stat

from palyra.guard.look_links import Allowance, follow_links
from palyra.guard.paths import inside

MAX_PATH_BYTES = 8192
"""No path that the kernel takes is as long; line ends may stand behind it."""
_FILE = b"gitdir: "
_OTHERS = ("/proc", "/dev")


class Elsewhere(Exception):
    """The path of a file of git's that says to git what it does not say to us."""


def read_file(path: str, most: int) -> bytes:
    """Nothing of what is not there, and of a folder."""
    try:
        # O_NONBLOCK: a FIFO put there must not hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        if os.path.islink(path) or _is_lost(os.path.dirname(path)):  # to what may be there for git
            raise Elsewhere(path) from error
        return b""
    try:
        status = os.fstat(descriptor)
        is_folder = stat.S_ISDIR(status.st_mode)
        if not (is_folder or stat.S_ISREG(status.st_mode)) or _is_led_away(descriptor, path):
            raise Elsewhere(path)
        return b"" if is_folder else os.read(descriptor, min(most, status.st_size + 1))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _is_lost(folder: str) -> bool:
    """A link to a folder that only git may see; in one that we see as well a file that is missing is missing."""
    if not os.path.islink(folder):
        return False
    end = follow_links(folder, "/")
    return not end.exists or _is_others(end.path)


def git_folder(place: str, allowance: Allowance | None = None) -> str:
    """Where a `.git` that is a file leads to; empty for what is no such file."""
    data = read_file(place, MAX_PATH_BYTES)
    return _end(data[len(_FILE) :], place, allowance) if data.startswith(_FILE) else ""


def common_folder(repository: str, allowance: Allowance | None = None) -> str:
    """Where a worktree's repository says that the settings and hooks are; empty where it says nothing."""
    place = f"{repository}/commondir"
    return _end(read_file(place, MAX_PATH_BYTES), place, allowance)


def worktree_file(repository: str, allowance: Allowance | None = None) -> str:
    """The `.git` of a worktree, as the folder that its repository keeps for it says; empty where it says nothing."""
    place = f"{repository}/gitdir"
    return _end(read_file(place, MAX_PATH_BYTES), place, allowance)


def own_folder(workspace: str, place: str) -> str:
    """`git_folder`, if that is in the workspace. At the top no honest one is: a worktree's or a submodule's repository
    is elsewhere, and one in the workspace has settings of the agent's."""
    end = git_folder(place)
    return end if end and inside(workspace, end) else ""


def _end(said: bytes, place: str, allowance: Allowance | None) -> str:
    text = os.fsdecode(said.rstrip(b"\r\n").partition(b"\0")[0])
    if not text:
        return ""
    end = follow_links(text, os.path.dirname(place), allowance)
    if allowance is not None:
        allowance.remember(end)
    if _is_others(end.path):
        raise Elsewhere(place)
    return end.path


def _is_led_away(descriptor: int, path: str) -> bool:
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") == path:  # without any link on the way, which most are
            return False
    except OSError:
        pass
    return _is_others(follow_links(path, "/").path)


def _is_others(path: str) -> bool:
    return any(inside(folder, path) for folder in _OTHERS)
