"""What the disk says about a call: the workspace, cwd, the executables and where path-like arguments really end.

Touches the file system, reading only. Rules:
1. What is missing, closed or too long is a fact, never an exception.
2. Programs are found on the operator's fixed search path alone, never through cwd, the workspace or the call's env.
3. Links are followed component by component, at most 40, a dangling link to its target too. Devices and descriptors
   of the program itself (/dev/stdin) are not followed.
4. Nothing is cached but digests of executables, by device, inode, size, mtime and ctime.

A protected or masked path that is a link is reported as the file or folder it leads to, when that is inside the
workspace; one that leads out is left out, because a launcher would bind the outside target, and outside the workspace
nothing is writable anyway. The link's own name can be replaced; names that appear or change are judged after the call.

Not here: what the sights mean (guard/facts), which pieces are looked at (guard/paths).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palyra.guard.command import shebang_program
from palyra.guard.paths import inside, is_device, workspace_problem
from palyra.model.plan import ExecutableSight, LookRequest, PathCandidate, PathSight, Sights, WorkspaceSight

MAX_LINKS = 40
MAX_MASKED = 64
MAX_SUBMODULES = 64
MAX_DIGESTS = 512
_CHUNK = 1 << 18
_BINARIES = (b"\x7fELF", b"MZ", b"\0asm", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf")
_BINARIES_SWAPPED = (b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")

PROTECTED_NAMES = frozenset(
    """
    .github .gitlab-ci.yml .gitlab .circleci .travis.yml .drone.yml .woodpecker .woodpecker.yml .buildkite .teamcity
    azure-pipelines.yml .azure-pipelines bitbucket-pipelines.yml appveyor.yml .appveyor.yml Jenkinsfile .jenkins
    .vscode .idea .fleet .husky .pre-commit-config.yaml .pre-commit-hooks.yaml lefthook.yml .lefthook.yml .devcontainer
    .devcontainer.json .claude .cursor .codex .gemini .mcp.json .palyra palyra.toml
    """.split()
)
"""At the top of a workspace: what other programs on the host run from there without being asked again."""
PROTECTED_IN_GIT = ("hooks", "config", "config.worktree", "commondir")
ENV_EXAMPLES = frozenset(f".env.{name}" for name in ("example", "sample", "template", "dist", "defaults"))
"""Of the .env files, those made to be read; they stay readable, not writable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildIdentity:
    """Who the child would be where its file system is not isolated (tier B without Landlock)."""

    uid: int
    gids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _End:
    path: str
    exists: bool
    links: tuple[str, ...]


class Looker:
    """`home` is the operator's home folder, `state_home` Palyra's own; neither may become a workspace."""

    def __init__(self, *, home: str, state_home: str, child: ChildIdentity | None = None) -> None:
        self._home = os.path.realpath(home) if home else ""
        self._state_home = os.path.realpath(state_home) if state_home else ""
        self._child = child
        self._digests: dict[tuple[int, ...], tuple[str, str]] = {}

    def look(self, request: LookRequest) -> Sights:
        workspace = self._look_at_workspace(request.workspace)
        base = workspace.path or "/"
        end = self._follow(request.cwd, base)
        cwd = PathSight(argument=-1, text=request.cwd, resolved=end.path, exists=_is_folder(end.path))
        return Sights(
            workspace=workspace,
            cwd=cwd,
            executable=self._look_at_program(request.command, request.search_path, workspace.path),
            also=tuple(self._look_at_program(n, request.search_path, workspace.path) for n in request.also),
            paths=tuple(self._look_at_paths(request.candidates, cwd.resolved)),
        )

    # ── paths ────────────────────────────────────────────────────────────────

    def _look_at_paths(self, candidates: Sequence[PathCandidate], cwd: str) -> Iterator[PathSight]:
        for candidate in candidates:
            end = self._follow(candidate.text, cwd)
            if candidate.must_exist and not end.exists and not end.links:
                continue
            yield PathSight(argument=candidate.argument, text=candidate.text, resolved=end.path, exists=end.exists)

    def _follow(self, text: str, base: str) -> _End:
        return _follow_links(self._expand(text), base)

    def _expand(self, text: str) -> str:
        """`~` and `~user` as shells and many programs read them, where such a user exists."""
        if not text.startswith("~"):
            return text
        user, slash, rest = text[1:].partition("/")
        if not user:
            return (self._home or "/root") + slash + rest
        try:
            folder = os.path.expanduser(f"~{user}")
        except ValueError:
            return text
        return folder + slash + rest

    # ── the workspace ────────────────────────────────────────────────────────

    def _look_at_workspace(self, text: str) -> WorkspaceSight:
        if not text:
            return WorkspaceSight(path="", problem="No workspace was given.")
        try:
            end = _follow_links(text, "/" if text.startswith("/") else os.getcwd())
            status = os.stat(end.path)
        except (OSError, ValueError):
            return WorkspaceSight(path="", problem="The workspace does not exist or cannot be entered.")
        if not stat.S_ISDIR(status.st_mode):
            return WorkspaceSight(path="", problem="The workspace is not a folder.")
        problem = workspace_problem(end.path, home=self._home, state_home=self._state_home)
        protected, masked = ((), ()) if problem else _find_guarded(end.path)
        if len(masked) > MAX_MASKED:
            problem = f"The workspace holds more than {MAX_MASKED} .env files to be hidden."
        return WorkspaceSight(
            path=end.path,
            problem=problem,
            owner_uid=status.st_uid,
            owner_gid=status.st_gid,
            protected=protected,
            masked=masked[:MAX_MASKED],
        )

    # ── executables ──────────────────────────────────────────────────────────

    def _look_at_program(self, name: str, search_path: Sequence[str], workspace: str) -> ExecutableSight:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            return ExecutableSight(name=name, path="")
        for folder in search_path:
            if not folder.startswith("/"):
                continue  # a relative entry would search the workspace
            path = f"{folder.rstrip('/')}/{name}"
            try:
                status = os.stat(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                return self._describe(name, path, workspace)
        return ExecutableSight(name=name, path="")

    def _describe(self, name: str, path: str, workspace: str) -> ExecutableSight:
        end = _follow_links(path, "/")
        sha256, shebang = self._digest(end.path)
        writable = any(self._is_agent_writable(place, workspace) for place in {path, end.path, *end.links})
        return ExecutableSight(
            name=name,
            path=end.path,
            found_at=path if path != end.path else "",
            sha256=sha256,
            agent_writable=writable,
            shebang=shebang,
        )

    def _is_agent_writable(self, path: str, workspace: str) -> bool:
        """The file, or a folder on the way to it in which it could be replaced."""
        if workspace and inside(workspace, path):
            return True
        while True:
            try:
                status = os.lstat(path)
            except (OSError, ValueError):
                return True
            if not stat.S_ISLNK(status.st_mode) and self._may_write(status):
                return True
            if path == "/":
                return False
            path = os.path.dirname(path)

    def _may_write(self, status: os.stat_result) -> bool:
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not sticky:
            return True
        child = self._child
        if child is None or child.uid == 0:
            return False
        if status.st_uid == child.uid:
            return True  # whoever owns it can make it writable
        return bool(status.st_gid in child.gids and status.st_mode & stat.S_IWGRP and not sticky)

    def _digest(self, path: str) -> tuple[str, str]:
        """(SHA-256, interpreter of a script); both empty when it cannot be read."""
        try:
            # O_NONBLOCK: a FIFO put there in the meantime must not hold us.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, ValueError):
            return "", ""
        try:
            key = _identity(os.fstat(descriptor))
            known = self._digests.get(key)
            if known is None:
                known = _read_program(descriptor)
                if _identity(os.fstat(descriptor)) == key:
                    self._digests[key] = known
                    while len(self._digests) > MAX_DIGESTS:
                        del self._digests[next(iter(self._digests))]
            return known
        except OSError:
            return "", ""
        finally:
            os.close(descriptor)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read_program(descriptor: int) -> tuple[str, str]:
    hasher = hashlib.sha256()
    first = b""
    while chunk := os.read(descriptor, _CHUNK):
        first = first or chunk[:256]
        hasher.update(chunk)
    if first.startswith((*_BINARIES, *_BINARIES_SWAPPED)):
        return hasher.hexdigest(), ""
    # A file that is neither a binary nor begins with #! is run by sh: the kernel says ENOEXEC, the launcher obeys.
    return hasher.hexdigest(), shebang_program(first) or "sh"


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _follow_links(text: str, base: str) -> _End:
    """Where a path ends. `base` is a real path; beyond something missing the rest is taken by its text."""
    current = "/" if text.startswith("/") else base
    parts = text.split("/")[::-1]
    links: list[str] = []
    missing = False
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            current, missing = os.path.dirname(current), False
            continue
        current = f"{current.rstrip('/')}/{part}"
        if missing or is_device(current):
            missing = missing or current == "/dev/fd"
            continue
        try:
            is_link = stat.S_ISLNK(os.lstat(current).st_mode)
            target = os.readlink(current) if is_link else ""
        except (OSError, ValueError):
            missing = True
            continue
        if is_link:
            links.append(current)
            if len(links) > MAX_LINKS:
                missing = True
                continue
            current = "/" if target.startswith("/") else os.path.dirname(current)
            parts += target.split("/")[::-1]
    return _End(current, not missing, tuple(links))


def _find_guarded(workspace: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(paths to keep read-only, files to hide) that exist in this workspace."""
    protected: set[str] = set()
    masked: set[str] = set()
    try:
        names = os.listdir(workspace)
    except OSError:
        return (), ()
    for name in names:
        if name.startswith(".env"):
            kind, real = _settle(workspace, name)
            if kind == "file" and name not in ENV_EXAMPLES:
                masked.add(real)
            elif kind:
                protected.add(real)
        elif name in PROTECTED_NAMES:
            kind, real = _settle(workspace, name)
            if kind:
                protected.add(real)
        elif name == ".git":
            protected.update(_find_in_git(workspace))
    return tuple(sorted(protected - masked)), tuple(sorted(masked))


def _find_in_git(workspace: str) -> Iterator[str]:
    kind, folder = _settle(workspace, ".git")
    if kind == "file":  # a worktree or submodule: the file says where the repository is, and must go on saying so
        yield folder
    elif kind == "folder":
        yield from _find_in_repository(workspace, folder)
        for place in _find_submodules(f"{folder}/modules", 0):
            yield from _find_in_repository(workspace, place)


def _find_submodules(place: str, depth: int) -> Iterator[str]:
    """`git status` on the host obeys each submodule's own config: core.fsmonitor there would run a program."""
    try:
        if os.path.islink(place) or depth > 4:
            return
        names = os.listdir(place)
    except OSError:
        return
    if "HEAD" in names:
        yield place
        return
    for name in sorted(names)[:MAX_SUBMODULES]:
        yield from _find_submodules(f"{place}/{name}", depth + 1)


def _find_in_repository(workspace: str, folder: str) -> Iterator[str]:
    for name in PROTECTED_IN_GIT:
        kind, real = _settle(workspace, os.path.relpath(f"{folder}/{name}", workspace))
        if kind:
            yield real


def _settle(workspace: str, name: str) -> tuple[str, str]:
    """("file" | "folder" | "", real path) of something in the workspace; "" when missing, special or leading out."""
    end = _follow_links(name, workspace)
    if not end.exists or end.path == workspace or not inside(workspace, end.path):
        return "", ""
    try:
        mode = os.lstat(end.path).st_mode
    except OSError:
        return "", ""
    if stat.S_ISDIR(mode):
        return "folder", end.path
    return ("file", end.path) if stat.S_ISREG(mode) else ("", "")
