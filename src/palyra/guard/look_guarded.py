"""What in a workspace stays closed: found on the disk, by the names of guard/protected.

Touches the file system, reading only. A protected or masked path that is a link is reported as the file or folder it
leads to, when that is inside the workspace; one that leads out is left out, because a launcher would bind the outside
target, and outside the workspace nothing is writable anyway. One that leads to the workspace itself (`.vscode -> .`),
or through /proc to wherever its reader works (`.claude -> /proc/self/cwd/x`), closes nothing that could be closed, and
is told after each call. Links on the way are closed as links; names that appear or change are judged after the call.

A program may take away its own user's rights (`chmod 0 .git`, `chmod 311 .`) and give them back in its next call, for
which nothing would have been found and closed. So a folder that cannot be looked into stays closed itself; and nothing
runs in a workspace that cannot. Not here: the names (protected), what settings name (look_named), mounts (sandbox).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice

from palyra.guard.look_links import FEWER, MAX_FOLDERS, TOO_MANY, Allowance, is_there, kind_of, mode_of, nearest, settle
from palyra.guard.look_named import find_hooks_of_operators, find_named, find_of_operators
from palyra.guard.paths import inside
from palyra.guard.protected import ENV_EXAMPLES, GIT_STORES, IN_GIT, IN_WORKTREE, PROTECTED_NAMES

MAX_DEPTH = 16
TOO_FULL = "The workspace has too many files in one folder to be checked."
SHUT = "What must stay closed in the workspace cannot be looked for: it may not be read and entered (chmod u+rwx)."


def find_guarded(
    workspace: str, allowance: Allowance, git_files: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(paths to keep read-only, files to hide) that exist in this workspace. `git_files`: the operator's own."""
    protected: set[str] = set()
    masked: set[str] = set()
    shut = allowance.shut
    names, folders = _scan(workspace, allowance)
    if allowance.entries < 0 or shut:  # what has a name that is known is not hidden by a crowd, nor by a mode
        allowance.refuse(SHUT if shut else TOO_FULL)
        names += [name for name in (*PROTECTED_NAMES, ".git") if is_there(f"{workspace}/{name}", allowance)]
    protected.update(find_of_operators(workspace, git_files, allowance))
    if not names:
        return tuple(sorted(protected)), ()
    for name in PROTECTED_NAMES.intersection(names):
        if not allowance.is_created(f"{workspace}/{name}"):
            protected.update(real for kind, real in (settle(workspace, name, allowance),) if kind)
    if ".git" in names:
        protected.update(_find_in_git(workspace, allowance))
    for folder in _find_nested(workspace, folders, allowance):
        if allowance.is_created(folder):
            protected.update(find_hooks_of_operators(workspace, folder, os.path.dirname(folder), allowance))
        else:
            protected.update(_find_in_repository(workspace, folder, allowance))
    for name in names:  # last: there can be any number of them
        if name.startswith(".env") and not allowance.is_created(f"{workspace}/{name}"):
            kind, real = settle(workspace, name, allowance)
            if kind == "file" and name not in ENV_EXAMPLES:
                masked.add(real)
            elif kind:
                protected.add(real)
    if shut:
        if workspace in shut:
            allowance.refuse(SHUT)
        protected |= {place for place in shut if place != workspace}
    return tuple(sorted(protected - masked)), tuple(sorted(masked))


def count_closed(workspace: str, protected: Sequence[str]) -> int:
    """With the folders on the way to them: an agent can put each at the end of a long way of its own."""
    met: set[str] = set()
    for path in protected:
        while path not in met and path != workspace:
            met.add(path)
            path = os.path.dirname(path)  # noqa: PLW2901
    return len(met)


def _list(place: str, allowance: Allowance) -> list[str]:
    names, _ = _scan(place, allowance)
    if allowance.entries < 0:
        allowance.refuse(TOO_MANY, FEWER)
    return names


def _find_in_git(workspace: str, allowance: Allowance) -> Iterator[str]:
    kind, folder = settle(workspace, ".git", allowance)
    if not kind:
        return
    if allowance.is_created(f"{workspace}/.git"):
        yield from find_hooks_of_operators(workspace, folder, workspace, allowance)
        return
    yield from _find_in_repository(workspace, folder, allowance, workspace)
    if kind == "folder":
        for place in _find_submodules(f"{folder}/modules", 0, allowance):
            yield from _find_in_folder(workspace, place, os.path.dirname(place), allowance)
        for name in _list(f"{folder}/worktrees", allowance):
            if allowance.enter() and not allowance.is_created(f"{folder}/worktrees/{name}"):
                yield from _find_in_worktree(workspace, f"{folder}/worktrees/{name}", allowance)


def _find_submodules(place: str, depth: int, allowance: Allowance) -> Iterator[str]:
    """`git status` on the host obeys each submodule's own config: core.fsmonitor there would run a program.

    No file makes it stop: with a HEAD put into `modules`, the submodules in it would be protected no more.
    """
    names, folders = _scan(place, allowance)
    if not names:
        return
    if allowance.entries < 0 or depth > MAX_DEPTH or not allowance.enter():
        allowance.refuse(TOO_MANY, FEWER)
        return
    repository = not {"HEAD", "config", "objects"}.isdisjoint(names)
    if repository:
        yield place
    for name in folders:
        path = f"{place}/{name}"
        is_store = repository and name in GIT_STORES  # asked for two names: an honest one has hundreds
        if not is_store or is_there(f"{path}/HEAD", allowance) or is_there(f"{path}/config", allowance):
            yield from _find_submodules(path, depth + 1, allowance)


def _find_nested(workspace: str, folders: Sequence[str], allowance: Allowance) -> Iterator[str]:
    """`.git` one and two levels below the top. Advice: a crowd of folders may hide one, and then it is not found."""
    first = [f"{workspace}/{name}" for name in folders if name != ".git"][:MAX_FOLDERS]
    yield from (path for path in (f"{place}/.git" for place in first) if _is_in_ours(path, allowance))
    left, crowd = MAX_FOLDERS - len(first), Allowance()
    for place in first:
        _, below = _scan(place, crowd)
        below = [name for name in below if name != ".git"][:left]
        left -= len(below)
        inner = (f"{place}/{name}/.git" for name in below)
        yield from (path for path in inner if _is_in_ours(path, allowance))


def _is_in_ours(path: str, allowance: Allowance) -> bool:
    """The same, but a folder of another user, which a program of ours may not open either, is left alone."""
    try:
        os.lstat(path)
    except PermissionError:
        folder = nearest(path)
        if os.lstat(folder).st_uid == os.geteuid():
            allowance.shut.add(folder)
        return False
    except (OSError, ValueError):
        return False
    return True


def _scan(place: str, allowance: Allowance) -> tuple[list[str], list[str]]:
    """(names in it, those of them that are folders and no links, sorted). One question to the kernel for all of them:
    this is asked before and after every call, of workspaces with thousands of files, and everybody waits meanwhile."""
    most = max(0, allowance.entries) + 1
    try:
        if os.path.islink(place):
            return [], []
        with os.scandir(place) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, most)]
    except PermissionError:
        allowance.shut.add(place if os.path.lexists(place) else nearest(place))
        return [], []
    except (OSError, ValueError):
        return [], []
    allowance.entries -= len(found)
    return [name for name, _ in found], sorted(name for name, is_folder in found if is_folder)


def _find_in_repository(workspace: str, folder: str, allowance: Allowance, files: str = "") -> Iterator[str]:
    """`files`: the top of its files, where that is not the folder it lies in."""
    kind, real = settle(workspace, folder.removeprefix(f"{workspace}/"), allowance)
    if kind == "file":  # a worktree or submodule: the file says where the repository is, and must go on saying so
        yield real
        yield from _find_led_to(workspace, real, allowance)
    elif kind:
        yield from _find_in_folder(workspace, real, files or os.path.dirname(folder), allowance)


def _find_in_folder(workspace: str, real: str, files: str, allowance: Allowance) -> Iterator[str]:
    """`real`: where the repository really is."""
    yield from _find_names(workspace, real, IN_GIT, allowance)
    yield from find_named(workspace, real, files, allowance)


def _find_led_to(workspace: str, file: str, allowance: Allowance) -> Iterator[str]:
    """`git init --separate-git-dir` and worktrees of a bare repository: hooks and settings lie in the workspace, under
    no name that is known. Where they lie outside, as a worktree's do, settings there can name what lies in it."""
    from palyra.guard.look_gitfile import Elsewhere, common_folder, git_folder

    try:
        folder = git_folder(file, allowance)
        if not folder or folder.startswith(f"{workspace}/.git/modules/"):
            return  # found already, with all others there
        common = common_folder(folder, allowance)
    except Elsewhere:
        allowance.untold.add(file)
        return
    is_known = folder.startswith(f"{workspace}/.git/worktrees/")  # found already, but for hooks among its own files
    for place, names in ((folder, IN_GIT | IN_WORKTREE), (common, IN_GIT)):
        if place and not is_known and inside(workspace, place):
            yield from _find_names(workspace, place, names, allowance)
        if place:
            yield from find_named(workspace, place, os.path.dirname(file), allowance)


def _find_in_worktree(workspace: str, place: str, allowance: Allowance) -> Iterator[str]:
    """Its files are anywhere: too far below to be found there, or where no agent is, with settings that lead here."""
    from palyra.guard.look_gitfile import Elsewhere, worktree_file

    kind, folder = settle(workspace, place, allowance)
    if kind != "folder":
        return
    yield from _find_names(workspace, folder, IN_WORKTREE, allowance)
    try:
        file = worktree_file(folder, allowance)
    except Elsewhere:
        allowance.untold.add(f"{folder}/gitdir")
        return
    if inside(workspace, file):
        yield from _find_in_repository(workspace, file, allowance)
    elif file:
        yield from find_named(workspace, folder, os.path.dirname(file), allowance)


def _find_names(workspace: str, folder: str, names: frozenset[str], allowance: Allowance) -> Iterator[str]:
    """`folder`: where it really is."""
    for name in names:  # asked for one by one: a crowd beside them hides none
        path = f"{folder}/{name}"
        mode = mode_of(path, allowance)
        if stat.S_ISLNK(mode):
            kind, path = settle(workspace, path, allowance)
        else:
            kind = kind_of(mode)
        if kind and not (kind == "folder" and name == "config"):  # a submodule of that name
            yield path
