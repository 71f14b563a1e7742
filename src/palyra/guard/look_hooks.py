"""Where git finds the programs that it runs by itself, hooks: mostly in the workspace, if settings say so.

Touches the file system, reading only. Rules: a relative path is taken from the top of the files and not from where the
repository lies (a submodule's in .git/modules, a worktree's elsewhere); a push looks from the repository itself.
Husky's `_/h` starts what lies beside that folder. What the operator's own settings say holds for every repository.

Not here: reading the settings (look_settings), what is closed (look_guarded).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from palyra.guard.look_links import Allowance
from palyra.guard.look_settings import Told, expanded

FILES = ("config", "config.worktree")


def hooks_of(repository: str, files: str, told: Told, allowance: Allowance) -> Iterator[str]:
    """Absolute paths, links in them not followed. `files`: the top of its files, where its settings do not say so."""
    for worktree in told.worktrees:
        files = os.path.join(repository, worktree.partition("\0")[0])
    for value in (*told.hooks, *allowance.hooks_everywhere):
        for path in expanded(value, allowance):
            hooks = os.path.join(files, path).rstrip("/")
            yield hooks
            if hooks.endswith("/_") and os.path.lexists(f"{hooks}/h"):
                yield os.path.dirname(hooks)
            if not path.startswith("/") and ".." not in path.split("/") and path.strip("./"):
                yield f"{repository}/{path}".rstrip("/")
