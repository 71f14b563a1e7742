"""Whether git would meet settings that name a program in the repositories of a workspace. Asked for git alone.

Touches the file system, reading only. Looked at are the repository at the top and those that were found beside it
(look_guarded). Whoever wrote them: what was there before an agent came is closed to it, but git runs it all the same,
and what was not there can be the agent's own. A repository that is deeper down may be missed: this is advice.

Not here: what such a setting is (gitconfig), what it means for the call (facts).
"""

from __future__ import annotations

import os
import stat

from palyra.guard.gitconfig import MAX_BYTES, program_in
from palyra.guard.look_links import follow_links
from palyra.guard.paths import inside
from palyra.model.sights import WorkspaceSight

_FILES = ("config", "config.worktree")


def look_at_git(workspace: WorkspaceSight) -> str:
    """The first such setting and its file, for a sentence; empty without one."""
    top = f"{workspace.path}/.git"
    if _is_own_folder(workspace.path, _read(top)):
        return "what .git, a file here, says: the repository is another folder of the workspace"
    beside = (path for path in workspace.protected if os.path.basename(path) in _FILES)
    for path in dict.fromkeys((*(f"{top}/{name}" for name in _FILES), *beside)):
        setting = program_in(_read(path))
        if setting:
            return f"{setting} in {os.path.relpath(path, workspace.path)}"
    return ""


def _is_own_folder(workspace: str, data: bytes) -> bool:
    """A worktree's or a submodule's repository is elsewhere; one in the workspace has settings of the agent's."""
    if not data.startswith(b"gitdir:"):
        return False
    text = os.fsdecode(data[len(b"gitdir:") :].strip())
    return "\0" not in text and inside(workspace, follow_links(text, workspace).path)


def _read(path: str) -> bytes:
    """No more than is looked at and one byte; nothing of what is no file."""
    try:
        # O_NONBLOCK: a FIFO put there must not hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, MAX_BYTES + 1)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
