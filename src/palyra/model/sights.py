"""What the disk says about a call: asked for with a `LookRequest`, answered with `Sights`.

Plain facts, each as it was found with links followed; nothing here says whether they are allowed.

Not here: looking (guard/look), what they mean (guard/facts).
"""

from __future__ import annotations

from palyra.values import dataclass

MAX_CREATED = 64
"""Guarded paths that one run may have created and still change: each is walked before every call of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCandidate:
    """A piece of an argument that can be a path, as guard/paths read it."""

    argument: int
    """Index into args; -1 for cwd."""
    text: str
    must_exist: bool = False
    """Only a path if it names something that exists (a bare word)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    workspace: str
    cwd: str
    """Relative to the workspace, or absolute; empty means the workspace."""
    command: str
    also: tuple[str, ...] = ()
    """Further program names to resolve: what a wrapper would run."""
    search_path: tuple[str, ...] = ()
    candidates: tuple[PathCandidate, ...] = ()
    args: tuple[str, ...] = ()
    """As they were given: how far git would go."""
    created: tuple[tuple[str, str], ...] = ()
    """(path, stamp) of guarded paths that calls of the run created; open while the stamp still fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSight:
    argument: int
    text: str
    resolved: str
    """Where it really ends, links followed component by component; a dangling link's target too."""
    exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableSight:
    name: str
    path: str
    """Where it really is, links followed; empty when it was not found on the fixed PATH."""
    found_at: str = ""
    """The name it was found under, a link perhaps: `unxz` is `xz` and tells by its name what to do."""
    sha256: str = ""
    agent_writable: bool = False
    """Below the workspace, or writable by the uid the child would have."""
    shebang: str = ""
    """Basename of the interpreter a script names in its first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSight:
    path: str
    """Real path; empty when it does not exist or is no folder."""
    problem: str = ""
    """Why it cannot be a workspace: missing, not a folder, the root, a home, a system folder, Palyra's own."""
    unclosable: str = ""
    """Why nothing could keep a program that may write in it from what must stay closed."""
    remedy: str = ""
    """What to do about either, where another workspace is not the answer."""
    owner_uid: int = 0
    owner_gid: int = 0
    open_to_all: bool = True
    """Every user may enter and list it; looked at where root's engine may have to run a program as nobody."""
    protected: tuple[str, ...] = ()
    """Absolute paths inside it that exist and stay read-only: .git/hooks, .git/config, CI folders …"""
    links: tuple[str, ...] = ()
    """Absolute paths inside it of links that lead to what is closed, and stay what they are."""
    left: tuple[str, ...] = ()
    """Absolute paths inside it of folders that stay where they are: `..` behind them leads to what is closed."""
    copied: tuple[str, ...] = ()
    """Of `protected`, files that the program may write a copy of, which ends with the call (guard/gitmodules)."""
    masked: tuple[str, ...] = ()
    """Absolute paths inside it that exist and are hidden: .env files, Palyra's own files."""
    guarded: tuple[str, ...] = ()
    """Absolute paths inside it that exist and have a guarded name: `.vscode`, `.env`, `.git`. The run does not own
    one of these that it did not create before."""
    created: tuple[tuple[str, str], ...] = ()
    """(path, stamp): those of `guarded` that the run created and that nobody else has changed. They are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sights:
    workspace: WorkspaceSight
    cwd: PathSight
    executable: ExecutableSight
    also: tuple[ExecutableSight, ...] = ()
    paths: tuple[PathSight, ...] = ()
    git_program: str = ""
    """Of a call of git: a setting in the workspace's repositories that names a program, and where; empty without."""
    resumable: tuple[str, ...] = ()
    """Of a call of git: folders with what it left half done (a rebase, picks, mails) that were read and name no
    program; empty when one of them may."""
