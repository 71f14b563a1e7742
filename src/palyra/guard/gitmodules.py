"""Which settings `git submodule update` writes again, though it has nothing to say in them.

Of every submodule that is there already git sets `core.worktree` to what it is, and for `--init` it writes down where a
submodule comes from; without that it gives up. Settings of a repository stay closed: what stands in them runs on the
host later (guard/protected). So for these calls they are shown as copies that end with the call: git writes its copy,
and nothing of that reaches the host's file. Rules: only for such a call, for elsewhere a setting that is gone after the
call would be a lie (`git remote add`); where a shell's code has these words, the submodules' own settings alone.

Not here: finding what is closed (look_guarded), how a copy is shown (inside/closing).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from palyra.guard.gitline import subcommand_words
from palyra.guard.programs import normalise
from palyra.guard.texts import code_arguments
from palyra.late import late
from palyra.model.sights import WorkspaceSight

_BREAK = late(r"[;&|\n]")
_WORDS = (late(r"\bgit\b"), late(r"\ssubmodule\s"), late(r"\bupdate\b"))


def copied_settings(command: str, args: Sequence[str], workspace: WorkspaceSight) -> tuple[str, ...]:
    """Of what is protected, the files to be shown as copies."""
    modules = f"{workspace.path}/.git/modules/"
    found = tuple(
        path
        for path in workspace.protected
        if path.startswith(modules) and posixpath.basename(path) == "config" and path != f"{modules}config"
    )
    if _updates(command, args):
        return tuple(path for path in workspace.protected if path == f"{workspace.path}/.git/config") + found
    return found if any(_has_update(args[at]) for at in code_arguments(command, args)) else ()


def _updates(command: str, args: Sequence[str]) -> bool:
    """`git submodule update`, with whatever options before and behind."""
    if normalise(command) != "git":
        return False
    words = [word for word in subcommand_words(args) if not word.startswith("-")]
    return words[:2] == ["submodule", "update"]


def _has_update(code: str) -> bool:
    """One command of a shell's code has the words in this order. Each is looked for once behind the one before: as a
    single pattern they took a second for 4 KB, a call may have a hundred such words, and nobody else is served."""
    return any(map(_has_words, _BREAK.split(code)))


def _has_words(command: str) -> bool:
    at = 0
    for word in _WORDS:
        found = word.search(command, at)
        if found is None:
            return False
        at = found.end()
    return True
