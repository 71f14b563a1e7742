"""Which folders of the host a tier C program sees, and which parts of its workspace are closed to it.

Rules: only real, absolute paths, compared by component. The workspace may not be, hold or lie in a folder the
sandbox makes for itself. A path that stays read-only or hidden is only safe when none of its parents inside the
workspace can be renamed away (`mv .git x && mkdir -p .git/hooks` plants a hook), so every parent is a mount too.
Palyra's own state is never visible, even where a granted folder holds it; the operator's home only where a
granted folder says so.

Not here: the launcher's words for all this (bwrap), whether a path exists (guard/look).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Protocol

from palyra.errors import Unenforceable
from palyra.model.host import Guarantee, HostFacts
from palyra.model.sights import WorkspaceSight
from palyra.values import dataclass

AGENT_HOME = "/home/agent"
PRIVATE = ("/tmp", "/var/tmp", AGENT_HOME)  # noqa: S108  # the sandbox's own, on a tmpfs
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
MADE = (*PRIVATE, *SYSTEM, "/dev", "/etc", "/proc", "/sys")
"""Folders of a sandbox that are not the host's, or are the host's for every program."""
OWN_FOLDER = "/etc/.palyra-inside/palyra/inside"
"""Where a sandbox has Palyra's own programs: below /etc, which is never a workspace."""
_KERNEL = ("/dev", "/proc", "/sys")
_SHARED_MEMORY = "/dev/shm/"  # noqa: S108
"""Below /dev and yet a place for projects, for a short time: a sandbox has a tmpfs of its own there, as in /tmp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    readable: tuple[str, ...]
    """Folders (or one file) bound read-only, outer before inner."""
    parents: tuple[str, ...]
    """Folders inside the workspace bound onto themselves, so that they cannot be renamed away."""
    protected: tuple[str, ...]
    hidden_files: tuple[str, ...]
    hidden_folders: tuple[str, ...]
    links: tuple[str, ...] = ()
    """Links inside the workspace that cannot be replaced."""
    copied: tuple[str, ...] = ()
    """Of those that are protected, files that the program gets a copy of."""


class Shown(Protocol):
    """What of a job decides over its view."""

    @property
    def workspace(self) -> WorkspaceSight: ...
    @property
    def workspace_writable(self) -> bool: ...
    @property
    def read_roots(self) -> tuple[str, ...]: ...
    @property
    def program(self) -> str: ...
    @property
    def program_file(self) -> str: ...


def view_of(job: Shown, host: HostFacts) -> View:
    workspace = job.workspace.path
    _check_workspace(workspace, host)
    if job.workspace_writable and job.workspace.unclosable:
        raise _refused(job.workspace.unclosable, job.workspace.remedy)
    readable = _readable(job, host)
    state = (host.state_home,) if host.state_home and _within_any(host.state_home, (workspace, *readable)) else ()
    hidden_folders = {path.rstrip("/") for path in job.workspace.masked if path.endswith("/")} | set(state)
    hidden_files = {path for path in job.workspace.masked if not path.endswith("/")}
    # In a read-only workspace nothing can be renamed or written anyway.
    protected = set(job.workspace.protected) if job.workspace_writable else set()
    links = set(job.workspace.links) - protected if job.workspace_writable else set()
    closed = {*protected, *links, *hidden_files, *hidden_folders} if job.workspace_writable else set()
    shut = protected | hidden_folders
    stay = {f"{folder}/." for folder in job.workspace.left if shut.isdisjoint(_parents(workspace, {f"{folder}/."}))}
    parents = _parents(workspace, closed | stay if job.workspace_writable else closed)
    return View(
        readable=readable,
        parents=tuple(sorted(parents - protected)),
        protected=tuple(sorted(protected)),
        links=tuple(sorted(links)),
        hidden_files=tuple(sorted(hidden_files)),
        hidden_folders=tuple(sorted(hidden_folders)),
        copied=tuple(sorted(protected & set(job.workspace.copied))),
    )


ETC = "/etc"
EMPTY_FILE, EMPTY_FOLDER = "/etc/.palyra-empty", "/etc/.palyra-empty.d"
"""Inside the sandbox: what stands in the place of hidden files and folders."""
HIDDEN_TEXT = b"# Palyra keeps this file from agents: its lines are not shown, and nothing can be written to it.\n"
"""What a hidden file reads as. A comment in every .env format: an empty file reads like a write that was lost, and a
program that reads .env at its start (vite, python-dotenv) ends where the file cannot be opened."""


def closings(view: View) -> tuple[tuple[str, str], ...]:
    """(kind, path) in the order they must be made: parents before what lies in them."""
    return (
        *(("parent", path) for path in view.parents),
        *(("copied" if path in view.copied else "protected", path) for path in view.protected),
        *(("link", path) for path in view.links),
        *(("hidden_file", path) for path in view.hidden_files),
        *(("hidden_folder", path) for path in view.hidden_folders),
    )


def is_within(path: str, folder: str) -> bool:
    """`path` is `folder` or lies below it, by component."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def _within_any(path: str, folders: Iterable[str]) -> bool:
    return any(is_within(path, folder) for folder in folders)


def _check_workspace(workspace: str, host: HostFacts) -> None:
    if not workspace.startswith("/") or posixpath.normpath(workspace) != workspace:
        raise _refused(f"The workspace {workspace!r} is not a resolved absolute path.", "Name an existing folder.")
    clash = [made for made in MADE if is_within(made, workspace)]
    clash += [made for made in SYSTEM if is_within(workspace, made)]
    clash += [made for made in _KERNEL if is_within(workspace, made) and not workspace.startswith(_SHARED_MEMORY)]
    if host.home and is_within(host.home, workspace):
        clash.append(host.home)
    if host.state_home and is_within(workspace, host.state_home):
        clash.append(host.state_home)
    if clash:
        raise _refused(f"The workspace {workspace} overlaps {clash[0]}, which must stay separate.", _instead(clash[0]))


def _instead(clash: str) -> str:
    if clash in SYSTEM:
        return (
            f"Every sandbox shows all of {clash} to its programs, so no project is private there: move it, to /srv say."
        )
    return "Use a project folder of its own as the workspace."


def _readable(job: Shown, host: HostFacts) -> tuple[str, ...]:
    """Granted folders that are not visible anyway, outer before inner, and the program where it is not in one."""
    visible = (*SYSTEM, job.workspace.path)
    roots: list[str] = []
    for root in sorted({posixpath.normpath(root) for root in job.read_roots}):
        _check_root(root, host)
        if not _within_any(root, (*visible, *roots)):
            roots.append(root)
    for program in filter(None, (job.program, job.program_file)):
        if not _within_any(program, (*visible, *roots)):
            roots.append(program_root(program, host))
    return tuple(sorted(roots))


def _check_root(root: str, host: HostFacts) -> None:
    covered = [made for made in MADE if is_within(made, root) and made not in SYSTEM]
    covered += [made for made in _KERNEL if is_within(root, made)]
    if host.state_home and is_within(root, host.state_home):
        covered.append(host.state_home)
    if not root.startswith("/") or covered:
        why = f"it would cover or expose {covered[0]}, which the sandbox keeps private" if covered else "it is relative"
        raise _refused(
            f"{root} cannot be shown to the program: {why}.",
            "Name exactly what the program needs, such as /etc/hostname and not /etc, with --read or in read_roots.",
        )


def program_root(program: str, host: HostFacts) -> str:
    """The folder of a toolchain's program; only the program itself where that folder says too much."""
    folder = posixpath.dirname(program)
    own = (*MADE, *(path for path in (host.home, host.state_home) if path))
    return program if any(is_within(path, folder) for path in own) else folder


def _parents(workspace: str, paths: Iterable[str]) -> set[str]:
    """Folders strictly between the workspace and each path."""
    found: set[str] = set()
    for path in paths:
        parent = posixpath.dirname(path)
        while parent != workspace and is_within(parent, workspace):
            found.add(parent)
            parent = posixpath.dirname(parent)
    return found


def _refused(detail: str, hint: str) -> Unenforceable:
    return Unenforceable((Guarantee.FS_ISOLATED.value,), detail, hint)
