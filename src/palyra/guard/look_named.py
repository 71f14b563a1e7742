"""What git obeys or runs on the host because settings name it: included files, folders of hooks, wherever they lie.

Touches the file system, reading only. Settings of a repository in the workspace, of one that the workspace is part of,
and the operator's own: an agent writes none of them, but all of them may lead into its workspace. Of a folder of hooks
all is closed; of the workspace itself, which cannot be, each name that git runs. A relative folder is taken from the
top of the files, not from where the repository lies (a submodule's in .git/modules, a worktree's elsewhere), though a
push looks from the repository itself. Husky's `_/h` starts what lies beside that folder.

Not here: reading settings (look_settings), where repositories are found (look_guarded).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from palyra.guard.look_links import Allowance, follow_links, settle
from palyra.guard.look_settings import Told, expanded, is_itself, real_files, told_by
from palyra.guard.paths import inside
from palyra.guard.protected import HOOKS, IN_GIT

_FILES = ("config", "config.worktree")
BELIEVED_S, MAX_BELIEVED = 1.0, 256
_quiet_until_s: dict[tuple[str, ...], float] = {}
_NOTHING = Told()
TOP_IS_HOOKS = (
    "git takes each file at the top of the workspace for a hook (core.hooksPath, init.templateDir), and what a program "
    "makes there under a hook's name would run with your next git command: names that do not exist cannot be closed"
)
HOOKS_ELSEWHERE = (
    "Give hooks a folder of their own, which is closed as a whole: git config core.hooksPath .githooks (git config "
    "--show-origin --get-all core.hooksPath says where it is set). Or make each missing name a plain file that is not "
    "executable, which git passes over:"
)


TOP_IS_TEMPLATE = (
    "git copies what lies here into each repository that it makes (init.templateDir): hooks and settings that a "
    "program writes here would run with your next git command there"
)
TEMPLATE_ELSEWHERE = "Work on a copy of the folder that git does not use, and copy back what you have read."


def find_named(workspace: str, repository: str, files: str, allowance: Allowance) -> Iterator[str]:
    """What git obeys or runs on the host beside a repository's own files, because its settings say so."""
    told, included = told_by([f"{repository}/{name}" for name in _FILES], allowance)
    for path in included:
        yield from _close(workspace, path, allowance)
    for worktree in told.worktrees:  # a submodule's, whose .git may lie too far below to be found
        kind, file = settle(workspace, os.path.join(repository, worktree.partition("\0")[0], ".git"), allowance)
        if kind == "file":
            yield file
    for path in _hooks_of(repository, files, told, allowance):
        if allowance.is_spent:
            return
        yield from _close_hooks(workspace, path, allowance)


def find_hooks_of_operators(workspace: str, repository: str, files: str, allowance: Allowance) -> Iterator[str]:
    """Folders of hooks that the operator's own settings name relative to every repository, this one among them."""
    for path in _hooks_of(repository, files, _NOTHING, allowance) if allowance.hooks_everywhere else ():
        yield from _close_hooks(workspace, path, allowance)


def find_of_operators(workspace: str, git_files: Sequence[str], allowance: Allowance) -> Iterator[str]:
    """Where the operator's own settings, or those of a repository that the workspace is a part of, lead into it. They
    hold for the operator's git everywhere: a folder of dot files may even hold them."""
    trusts_others, now_s = False, time.monotonic()
    if git_files and _quiet_until_s.get((workspace, *git_files), 0.0) <= now_s:
        told, included = told_by(git_files, allowance)
        own = [file for file, real in real_files(git_files) if file != real or inside(workspace, real)]
        nothing = told == _NOTHING and not included and not allowance.is_spent
        if nothing and all(_lies_elsewhere(workspace, file) for file in git_files):
            _believe((workspace, *git_files), now_s)
        yield from _find_told(workspace, told, (*own, *included), allowance)
        trusts_others = bool(told.trusted)
    above = os.path.dirname(workspace)
    while above != "/":
        if os.access(f"{above}/.git", os.F_OK) and (trusts_others or _is_obeyed(above, allowance)):
            yield from _find_around(workspace, above, allowance)
        above = os.path.dirname(above)


def _believe(which: tuple[str, ...], now_s: float) -> None:
    """That these settings lead nowhere, for a moment: it is asked before and after every call, and no agent changes
    or makes what lies elsewhere."""
    if len(_quiet_until_s) >= MAX_BELIEVED:
        _quiet_until_s.clear()
    _quiet_until_s[which] = now_s + BELIEVED_S


def _lies_elsewhere(workspace: str, file: str) -> bool:
    """Whether it is there or not: no name and no link leads into the workspace."""
    place, above = file, os.path.dirname(file)
    while place != above and not os.path.lexists(place):
        place, above = above, os.path.dirname(above)
    return not inside(workspace, file) and is_itself(place)


def _find_told(workspace: str, told: Told, files: Sequence[str], allowance: Allowance) -> Iterator[str]:
    """`files`: settings that may lie here."""
    allowance.hooks_everywhere = tuple(path for path in told.hooks if not path.startswith(("/", "~")))
    for path in files:
        yield from _close(workspace, path, allowance)
    for path in (path for value in told.hooks for path in expanded(value, allowance)):
        for folder in _with_husky(path.rstrip("/")) if path.startswith("/") else ():
            yield from _close_hooks(workspace, folder, allowance)
    for path in (path for value in told.templates for path in expanded(value, allowance)):
        yield from _close_template(workspace, path, allowance) if path.startswith("/") else ()


def _is_obeyed(top: str, allowance: Allowance) -> bool:
    """git takes no settings from a repository of another user's, where nobody told it to: in /tmp anybody makes one."""
    try:
        owners = {os.lstat(top).st_uid, os.lstat(f"{top}/.git").st_uid}
    except OSError:
        return False
    return owners <= {0, os.geteuid(), *allowance.owners}


def _find_around(workspace: str, top: str, allowance: Allowance) -> Iterator[str]:
    from palyra.guard.look_gitfile import Elsewhere, common_folder, git_folder

    try:
        folder = git_folder(f"{top}/.git", allowance) or f"{top}/.git"
        places = {folder, common_folder(folder, allowance) or folder}
    except Elsewhere:  # not an agent's to write
        return
    for place in places:
        if place == workspace:
            yield from (real for name in IN_GIT for kind, real in (settle(workspace, name, allowance),) if kind)
        elif workspace == f"{place}/hooks":
            yield from _close_hooks(workspace, workspace, allowance)
        yield from find_named(workspace, place, top, allowance)


def _close(workspace: str, path: str, allowance: Allowance) -> Iterator[str]:
    """A file of settings."""
    if _is_plainly_outside(workspace, path):
        return
    kind, real = settle(workspace, path, allowance)
    if kind:
        yield real
    elif os.path.lexists(path) and inside(workspace, path) and not os.path.islink(path):
        allowance.untold.add(path)  # a pipe, say, which says something else to each who reads


def _close_hooks(workspace: str, path: str, allowance: Allowance) -> Iterator[str]:
    """The whole folder. Of the workspace itself each name that git runs: a mount needs something to lie on, so one that
    is missing, or a link that can be replaced, is left for whoever plans a sandbox to refuse."""
    if _is_plainly_outside(workspace, path):
        return
    kind, real = settle(workspace, path, allowance)
    if kind:
        yield real
    elif real == workspace:
        plain = {name for name in HOOKS if settle(workspace, name, allowance) == ("file", f"{workspace}/{name}")}
        yield from (f"{workspace}/{name}" for name in plain)
        if missing := sorted(HOOKS - plain):
            allowance.unclosable = f"{TOP_IS_HOOKS}: {', '.join(missing)}."
            if not allowance.problem:
                allowance.remedy = f"{HOOKS_ELSEWHERE} touch {' '.join(missing)}"


def _close_template(workspace: str, path: str, allowance: Allowance) -> Iterator[str]:
    """Of the workspace itself nothing can be closed: what is not there yet (`commondir`) is copied as well."""
    kind, real = settle(workspace, path, allowance)
    if kind:
        yield real
    elif real == workspace or follow_links(path, "/", allowance).path == os.path.dirname(workspace):
        allowance.unclosable, allowance.remedy = TOP_IS_TEMPLATE, allowance.remedy or TEMPLATE_ELSEWHERE


def _is_plainly_outside(workspace: str, path: str) -> bool:
    if inside(workspace, path):
        return False
    return is_itself(path) if os.path.lexists(path) else is_itself(os.path.dirname(path))


def _hooks_of(repository: str, files: str, told: Told, allowance: Allowance) -> Iterator[str]:
    """Absolute paths, links in them not followed. `files`: the top of its files, where its settings do not say so."""
    for worktree in told.worktrees:
        files = os.path.join(repository, worktree.partition("\0")[0])
    for value in (*told.hooks, *allowance.hooks_everywhere):
        for path in expanded(value, allowance):
            yield from _with_husky(os.path.join(files, path).rstrip("/"))
            if not path.startswith("/") and ".." not in path.split("/") and path.strip("./"):
                yield f"{repository}/{path}".rstrip("/")


def _with_husky(hooks: str) -> Iterator[str]:
    yield hooks
    if hooks.endswith("/_") and os.path.lexists(f"{hooks}/h"):
        yield os.path.dirname(hooks)
