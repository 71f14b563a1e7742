"""Whether git would meet settings that name a program in the repositories of a workspace. Asked for git alone.

Touches the file system, reading only. Looked at are the repository at the top, those that were found beside it
(look_guarded) and those that its index holds, wherever they are. Whoever wrote them: what was there before an agent
came is closed to it, but git runs it all the same, and what was not there can be the agent's own. This is advice: what
another run writes a moment later, and an index of more than 16 MiB, are not seen.

Not here: what such a setting is (gitconfig), what it means for the call (facts).
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator

from palyra.guard import gitconfig, gitindex
from palyra.guard.look_links import follow_links
from palyra.guard.paths import inside
from palyra.model.sights import WorkspaceSight

MAX_NESTED = 512
_FILES = ("config", "config.worktree")


def look_at_git(workspace: WorkspaceSight) -> str:
    """The first such setting and its file, for a sentence; empty without one."""
    top = f"{workspace.path}/.git"
    if _own_folder(workspace.path, top):
        return "what .git, a file here, says: the repository is another folder of the workspace"
    beside = (path for path in workspace.protected if os.path.basename(path) in _FILES)
    try:
        nested = [f"{folder}/{name}" for folder in _nested(workspace.path, top) for name in _FILES]
    except ValueError:
        return "an index that cannot be read"
    for path in dict.fromkeys((*(f"{top}/{name}" for name in _FILES), *beside, *nested)):
        setting = gitconfig.program_in(_read(path, gitconfig.MAX_BYTES + 1))
        if setting:
            return f"{setting} in {os.path.relpath(path, workspace.path)}"
    return ""


def _nested(workspace: str, top: str) -> Iterator[str]:
    """Folders with the settings of those that the index holds; a shared part of the index is an index too."""
    for index in (f"{top}/index", *glob.iglob("sharedindex.*", root_dir=top)):
        names = gitindex.nested_in(_read(os.path.join(top, index), gitindex.MAX_BYTES))
        if len(names) > MAX_NESTED:
            raise ValueError("too many")
        for name in names:
            place = f"{workspace}/{os.fsdecode(name)}/.git"
            yield _own_folder(workspace, place) or place


def _own_folder(workspace: str, place: str) -> str:
    """Where a file `.git` leads to, if that is in the workspace. At the top no honest one does: a worktree's or a
    submodule's repository is elsewhere, and one in the workspace has settings of the agent's."""
    data = _read(place, 4096)
    if not data.startswith(b"gitdir:"):
        return ""
    text = os.fsdecode(data[len(b"gitdir:") :].strip())
    end = "" if "\0" in text else follow_links(text, os.path.dirname(place)).path
    return end if end and inside(workspace, end) else ""


def _read(path: str, most: int) -> bytes:
    """Nothing of what is no file."""
    try:
        # O_NONBLOCK: a FIFO put there must not hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, most) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
