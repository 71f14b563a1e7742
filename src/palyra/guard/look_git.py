"""Whether git would meet settings that name a program in the repositories of a workspace. Asked for git alone.

Touches the file system, reading only. Looked at are the repository at the top, those that were found beside it
(look_guarded), those that its index holds, wherever they are, and those that theirs hold; where git goes on by itself
(`--recursive`), all that lie in a submodule; where it looks at the index it has just made (gitreport), all that lie in
the workspace. Whoever wrote them: what was
there before an agent came is closed to it, but git runs it all the same, and what was not there can be the agent's own.
Rules: an agent can have written every file of them, so they are read as git reads them, and what leads git elsewhere
than where is looked counts as a program: files in another folder, an index that cannot be read or is too large to be.
This is advice: what another run writes a moment later is not seen.

Not here: what such a setting is (gitconfig), what it means for the call (facts).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from palyra.guard import gitconfig, gitindex
from palyra.guard.githooks import IGNORED_HOOK
from palyra.guard.gitreport import Reports
from palyra.guard.look_gitfile import Elsewhere, common_folder, own_folder, read_file
from palyra.guard.look_links import follow_links
from palyra.guard.paths import inside
from palyra.model.sights import WorkspaceSight

_FILES = ("config", "config.worktree")
_STEPS = ("rebase-merge", "rebase-apply", "sequencer")
_LEFT = ("MERGE_AUTOSTASH", "rebase-merge/autostash", "rebase-apply/autostash", "reftable")
"""Where it says that changes were put aside; in the last, with all other names."""
MAX_STEPS_BYTES = 1 << 20
MAX_NESTED = 512
MAX_CONFIG_BYTES = 1 << 20
MAX_INDEX_BYTES = gitindex.MAX_BYTES
"""Of all repositories together: 500 of them, each as big as one may be, would hold everybody up for a minute."""
UNREADABLE = "an index that cannot be read"
NOT_PLAIN = "which leads each program elsewhere, or is no plain file"
TOO_LARGE = f"an index of more than {MAX_INDEX_BYTES >> 20} MiB, which is not read"
MAX_NAMES = 1 << 16
"""Each is a question to the disk; honest indexes name a few hundred."""
TOO_MANY = f"more than {MAX_NESTED} repositories, which are not all looked at"


MAX_FOLDERS = 1 << 14
TOO_DEEP = f"submodules of more than {MAX_FOLDERS} folders, which are not all looked through"
TOO_WIDE = (
    f"what may lie in more than {MAX_FOLDERS} folders of the workspace, once a commit calls one a submodule; with -q "
    "right behind checkout, switch, stash pop or stash apply, and without --autostash, it looks into none"
)


def look_at_git(
    workspace: WorkspaceSight, *, recurses: bool = False, reports: Reports = Reports.NEVER, hooks: bool = False
) -> str:
    """The first such setting and its file, for a sentence; empty without one. `recurses`: git goes on into whatever the
    submodules' submodules are once they have been checked out. `hooks`: it may run one whatever it is told."""
    top = f"{workspace.path}/.git"
    look = _Look(workspace.path, recurses=recurses, reports=reports, hooks=hooks)
    beside = (os.path.dirname(path) for path in workspace.protected if _is_of_repository(path))
    try:
        if own_folder(workspace.path, top):
            return "what .git, a file here, says: the repository is another folder of the workspace"
        if _is_bare(workspace.path):
            return "the workspace itself, which is laid out as a bare repository"
        return look.at_repository(workspace.path, top) or next(filter(None, map(look.at_settings, beside)), "")
    except _TooMuch as error:
        return str(error)
    except Elsewhere as error:
        return f"{os.path.relpath(str(error), workspace.path)}, {NOT_PLAIN}"
    except ValueError:
        return UNREADABLE


def look_at_steps(workspace: WorkspaceSight) -> tuple[str, ...]:
    """The folders of what git left half done, where none of them names a program or is anything but a folder."""
    places = [f"{workspace.path}/.git/{name}" for name in _STEPS]
    if not any(place in workspace.protected for place in places):
        return ()
    from palyra.guard.gitsteps import OPTIONS, TODO, names_no_program

    there = [(name, place) for name, place in zip(_STEPS, places, strict=True) if os.path.lexists(place)]
    for name, place in there:
        todo, options = (_read_plain(f"{place}/{names[name]}") if name in names else b"" for names in (TODO, OPTIONS))
        # What is closed under its own name is no link: one to a folder of the agent's was settled elsewhere.
        if place not in workspace.protected or todo is None or options is None:
            return ()
        if not names_no_program(name, todo, options):
            return ()
    return tuple(place for _, place in there)


def _is_bare(folder: str) -> bool:
    """As git recognises one, with hooks and settings beside the files; before 2.38 nothing keeps git from it."""
    return _may_exist(f"{folder}/HEAD") and any(_may_exist(f"{folder}/{name}") for name in ("refs", "commondir"))


def _may_exist(path: str) -> bool:
    """Executable or not: another call may change that. What may not be looked at may be there."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_of_repository(path: str) -> bool:
    """And not the operator's own settings in a folder of dot files, which git in a sandbox does not obey."""
    folder, name = os.path.split(path)
    return name in _FILES and ("/.git/" in path or os.path.lexists(f"{folder}/HEAD"))


class _TooMuch(Exception):
    """Its sentence says of what."""


class _Look:
    def __init__(self, workspace: str, *, recurses: bool, reports: Reports, hooks: bool) -> None:
        self._workspace = workspace
        self._recurses = recurses
        self._hooks = hooks
        self._reports = reports
        self._folders = 0
        self._seen: dict[str, gitconfig.Reading] = {}
        self._bytes = self._index_bytes = self._asked = 0

    def at_repository(self, files: str, place: str) -> str:
        """It and those that its index holds, and theirs: `git submodule update --recursive` goes into all of them."""
        waiting, known = [(files, place)], {place}
        while waiting:
            files, place = waiting.pop()
            common = self._common(place)
            setting = self.at_settings(common) or (self.at_settings(place) if common != place else "")
            setting = setting or self._at_hook(common) or self._at_hook(place)
            reading = self._seen[common]
            if setting or (reading.worktree and self._path(reading.worktree, place) != files):
                # Names in the index would be those of another folder's files.
                return setting or f"core.worktree in {self._shown(f'{common}/config')}"
            for folder in chain(
                self._inner(files, self._names(place, sha256=reading.sha256)), self._anywhere(files, place, reading)
            ):
                inner = own_folder(self._workspace, f"{folder}/.git") or f"{folder}/.git"
                if inner not in known and os.path.isdir(inner):
                    waiting.append((folder, inner))
                    known.add(inner)
                self._asked += 1
                if self._asked > MAX_NAMES:
                    raise _TooMuch(TOO_MANY)
            if len(known) > MAX_NESTED:
                raise _TooMuch(TOO_MANY)
        return ""

    def _inner(self, files: str, names: Iterator[str]) -> Iterator[str]:
        for name in names:
            yield f"{files}/{name}"
            if self._recurses and files == self._workspace:
                yield from self._below(f"{files}/{name}")

    def _anywhere(self, files: str, place: str, reading: gitconfig.Reading) -> Iterator[str]:
        if files != self._workspace or self._reports is Reports.NEVER:
            return
        stashes = reading.stashes and self._reports is Reports.BEHIND_A_STASH
        if self._reports is Reports.ALWAYS or stashes or any(os.path.lexists(f"{place}/{name}") for name in _LEFT):
            yield from self._below(files, TOO_WIDE)

    def _below(self, top: str, too_much: str = TOO_DEEP) -> Iterator[str]:
        """Folders in a submodule's with a repository of their own, which no index holds: the commit that `git submodule
        update --recursive` checks out there may call one a submodule, and then git obeys its settings in this call."""
        waiting = [top]
        while waiting:
            self._folders += 1
            if self._folders > MAX_FOLDERS:
                raise _TooMuch(too_much)
            place = waiting.pop()
            try:
                with os.scandir(place) as entries:
                    inner = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except (OSError, ValueError):
                continue
            if inner.pop(".git", None) is not None and place != top:
                yield place
            waiting += [f"{place}/{name}" for name, is_folder in inner.items() if is_folder]

    def at_settings(self, folder: str) -> str:
        if folder in self._seen:
            return ""
        worktree, stashes, reading = "", False, gitconfig.Reading()
        for name in reversed(_FILES):
            data = read_file(f"{folder}/{name}", gitconfig.MAX_BYTES + 1)
            self._bytes += len(data)
            reading = self._seen[folder] = gitconfig.read_config(data)
            if reading.program or self._bytes > MAX_CONFIG_BYTES:
                return f"{reading.program or 'more than can be read'} in {self._shown(f'{folder}/{name}')}"
            worktree, stashes = worktree or reading.worktree, stashes or reading.stashes
        self._seen[folder] = replace(reading, worktree=worktree, stashes=stashes)
        return ""

    def _at_hook(self, place: str) -> str:
        hook = f"{place}/{IGNORED_HOOK}"
        if not self._hooks or not (_may_exist(hook) or self._is_led_away(hook)):
            return ""
        return f"the hook {self._shown(hook)}, whatever settings say"

    def _is_led_away(self, path: str) -> bool:
        """A link leads out of the workspace: what is there for git (`/proc/self/cwd/x`) may not be there for us."""
        end = follow_links(path, "/")
        return bool(end.links) and not inside(self._workspace, end.path)

    def _common(self, place: str) -> str:
        """Where its settings are: a worktree's are those of the repository that it is one of."""
        end = common_folder(place)
        return end if end and inside(self._workspace, end) else place

    def _names(self, place: str, *, sha256: bool) -> Iterator[str]:
        """What its index holds; a shared part of the index is an index too."""
        every = False
        for index in ("index", *glob.iglob("sharedindex.*", root_dir=place)):
            data = read_file(f"{place}/{index}", MAX_INDEX_BYTES - self._index_bytes + 1)
            self._index_bytes += len(data)
            if self._index_bytes > MAX_INDEX_BYTES:
                raise _TooMuch(TOO_LARGE)
            names = gitindex.nested_in(data, sha256=sha256, every=every)
            every = every or b"" in names
            yield from (os.fsdecode(name) for name in names if name)

    @staticmethod
    def _path(text: str, start: str) -> str:
        return "" if "\0" in text else follow_links(text, start).path

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._workspace)


def _read_plain(path: str) -> bytes | None:
    """Nothing of what is missing; None of what is no file, or too long: a FIFO is filled later."""
    if not os.path.lexists(path):
        return b""
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    try:
        data = read_file(path, MAX_STEPS_BYTES + 1)
    except Elsewhere:
        return None
    return data if len(data) <= MAX_STEPS_BYTES else None
