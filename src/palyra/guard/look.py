"""What the disk says about a call: the workspace, cwd, the executables and where path-like arguments really end.

Touches the file system, reading only. Rules:
1. What is missing, closed or too long is a fact, never an exception.
2. Programs are found on the operator's fixed search path alone, never through cwd, the workspace or the call's env.
3. Links are followed by look_links, one by one.
4. Cached are digests of executables, by device, inode, size, mtime and ctime, and where a program was found, for as
   long as nothing on the way to it has changed (look_trail); neither while somebody has the file open for writing.
5. One look takes a bounded number of steps; beyond it the call is refused, because nothing further is known.

Not here: what the sights mean (guard/facts), which pieces are looked at (guard/paths), what is closed (look_guarded).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from palyra.guard.command import shebang_program
from palyra.guard.look_guarded import count_closed, find_guarded
from palyra.guard.look_links import FEWER, GUARDED_STEPS, Allowance, End, follow_links
from palyra.guard.look_settings import homes_of
from palyra.guard.look_trail import Trail, has_changed, has_writers, take_trail
from palyra.guard.paths import inside, workspace_problem
from palyra.guard.programs import normalise
from palyra.model.changes import Snapshot
from palyra.model.sights import ExecutableSight, LookRequest, PathCandidate, PathSight, Sights, WorkspaceSight
from palyra.values import dataclass

MAX_MASKED = 64
MAX_PROTECTED = 2048
MAX_CLOSED = 2 * MAX_PROTECTED
"""With the folders on the way to them, which are mounts too: each costs every sandbox some 80 microseconds. A submodule
needs five, an ordinary workspace a dozen in all."""
FEWER_ENV = "Move some of them into a folder: only those at the top of the workspace are hidden."
MAX_TOLD = 64
"""Names that appeared: more would be output that no quota counts, and a crowd to hide one among."""
MAX_DIGESTS = 512
GIT_FILES = (".gitconfig", ".config/git/config")
MAX_WORKSPACES = 64
_CHUNK = 1 << 18
_BINARIES = (b"\x7fELF", b"MZ", b"\0asm", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf")
_BINARIES_SWAPPED = (b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildIdentity:
    """Who the child would be where its file system is not isolated (tier B without Landlock)."""

    uid: int
    gids: frozenset[int] = frozenset()


class Looker:
    """`home` is the operator's home folder, `state_home` Palyra's own; neither may become a workspace. `git_files` are
    the operator's own settings of git's."""

    def __init__(
        self, *, home: str, state_home: str, child: ChildIdentity | None = None, git_files: Sequence[str] = ()
    ) -> None:
        self._home = os.path.realpath(home) if home else ""
        self._state_home = os.path.realpath(state_home) if state_home else ""
        self._child = child
        self._git_files = tuple(git_files)
        self._operators: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._digests: dict[tuple[int, ...], tuple[str, str]] = {}
        self._found: dict[tuple[str, tuple[str, ...], str], tuple[Trail, ExecutableSight]] = {}
        self._workspaces: dict[str, tuple[Trail, WorkspaceSight]] = {}

    def look(self, request: LookRequest) -> Sights:
        workspace = self._look_at_workspace(request.workspace, request.created)
        base = workspace.path or "/"
        allowance = Allowance()
        cwd = self._look_at_cwd(request.cwd, workspace, allowance)
        paths = tuple(self._look_at_paths(request.candidates, cwd.resolved, base, allowance))
        new_problem = allowance.problem and not workspace.problem
        git_program, resumable = _look_at_git(request, workspace)
        return Sights(
            workspace=replace(workspace, problem=allowance.problem) if new_problem else workspace,
            cwd=cwd,
            executable=self._look_at_program(request.command, request.search_path, workspace.path),
            also=tuple(self._look_at_program(n, request.search_path, workspace.path) for n in request.also),
            paths=paths,
            git_program=git_program,
            resumable=resumable,
        )

    def _look_at_cwd(self, text: str, workspace: WorkspaceSight, allowance: Allowance) -> PathSight:
        if not text and workspace.path:  # the workspace itself, which was looked at a moment ago
            return PathSight(argument=-1, text="", resolved=workspace.path, exists=True)
        end = self._follow(text, workspace.path or "/", allowance)
        return PathSight(argument=-1, text=text, resolved=end.path, exists=_is_folder(end.path))

    def present(self, paths: Sequence[str]) -> Mapping[str, str]:
        return {path: os.path.realpath(path) for path in paths if os.path.exists(path)}

    def snapshot(self, workspace: str) -> Snapshot:
        from palyra.guard.look_changes import look_at_workspace  # only for who asked what a program changed

        return look_at_workspace(workspace)

    def appeared(self, workspace: WorkspaceSight) -> tuple[str, ...]:
        """What nothing could be mounted over, because it did not exist: told after the call."""
        allowance = Allowance(steps=GUARDED_STEPS, created=frozenset(path for path, _ in workspace.created))
        protected, masked = self._find_guarded(workspace, allowance)
        known = {*workspace.protected, *workspace.masked} - allowance.untold
        told_first = sorted({*protected, *allowance.untold})  # hooks before any crowd of .env files
        new = [path for path in (*told_first, *masked) if path not in known]
        if not new and not allowance.problem:
            return ()
        names = (os.path.relpath(path, workspace.path) for path in new[:MAX_TOLD])
        # It is told as JSON, which has no spelling for a name that is not UTF-8.
        told = sorted(os.fsencode(name).decode("utf-8", "replace") for name in names)
        told += [f"… and {len(new) - MAX_TOLD} more"] if len(new) > MAX_TOLD else []
        told += [f"… and what could not be looked at: {allowance.problem}"] if allowance.problem else []
        return tuple(told)

    def created(self, workspace: WorkspaceSight, *, during_unix_ms: range) -> Mapping[str, str]:
        from palyra.guard.look_created import stamp_created  # only after a call that created such a path

        allowance = Allowance(steps=GUARDED_STEPS)
        self._find_guarded(workspace, allowance)
        return stamp_created(workspace, sorted(allowance.guarded), during_unix_ms=during_unix_ms)

    # ── paths ────────────────────────────────────────────────────────────────

    def _look_at_paths(
        self, candidates: Sequence[PathCandidate], cwd: str, workspace: str, allowance: Allowance
    ) -> Iterator[PathSight]:
        for candidate in candidates:
            end = self._follow(candidate.text, cwd, allowance)
            # Only inside the workspace may it matter what exists: out there, a refusal would tell.
            if candidate.must_exist and not end.exists and not end.links and inside(workspace, end.path):
                continue
            yield PathSight(argument=candidate.argument, text=candidate.text, resolved=end.path, exists=end.exists)

    def _follow(self, text: str, base: str, allowance: Allowance) -> End:
        return follow_links(self._expand(text), base, allowance)

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

    def _look_at_workspace(self, text: str, created: Sequence[tuple[str, str]] = ()) -> WorkspaceSight:
        """Where it is and whose is kept while nothing on the way to it changes; what is in it never is."""
        known = self._workspaces.get(text)
        if known is not None and not has_changed(known[0]):
            return self._with_guarded(known[1], created)
        sight = self._find_workspace(text)
        if sight.problem:
            return sight
        trail = take_trail([text]) if text == sight.path else ()
        folders = [status for _, status in trail if status is not None and stat.S_ISDIR(status[0])]
        if trail and len(folders) == len(trail) and self._find_workspace(text) == sight:  # nothing moved meanwhile
            self._workspaces[text] = trail, sight
            while len(self._workspaces) > MAX_WORKSPACES:
                del self._workspaces[next(iter(self._workspaces))]
        return self._with_guarded(sight, created)

    def _with_guarded(self, workspace: WorkspaceSight, created: Sequence[tuple[str, str]]) -> WorkspaceSight:
        """What stays closed in it, as the disk has it now."""
        if created:
            from palyra.guard.look_created import still_created

            created = still_created(workspace.path, created)
        allowance = Allowance(steps=GUARDED_STEPS, created=frozenset(path for path, _ in created))
        protected, masked = self._find_guarded(workspace, allowance)
        if len(masked) > MAX_MASKED:
            allowance.refuse(f"The workspace contains more than {MAX_MASKED} .env files to be hidden.", FEWER_ENV)
        elif (
            len(protected) > MAX_PROTECTED
            or count_closed(workspace.path, (*protected, *allowance.links, *allowance.left)) > MAX_CLOSED
        ):
            allowance.refuse(f"The workspace contains more than {MAX_PROTECTED} guarded files.", FEWER)
        found = (protected, masked, allowance.links, allowance.left, allowance.guarded)
        if not (allowance.problem or allowance.unclosable or any(found)):
            return workspace
        return replace(
            workspace,
            problem=allowance.problem,
            unclosable=allowance.unclosable,
            remedy=allowance.remedy,
            protected=protected[:MAX_PROTECTED],
            masked=masked[:MAX_MASKED],
            links=tuple(sorted(allowance.links)),
            left=tuple(sorted(allowance.left)),
            guarded=tuple(sorted(allowance.guarded)),
            created=tuple(created),
        )

    def _find_guarded(self, workspace: WorkspaceSight, allowance: Allowance) -> tuple[tuple[str, ...], tuple[str, ...]]:
        allowance.owners = (workspace.owner_uid,)
        allowance.homes, git_files = self._operators.get(workspace.owner_uid) or self._operators_of(workspace.owner_uid)
        found = find_guarded(workspace.path, allowance, git_files)
        if allowance.left:
            allowance.left = {folder for folder in allowance.left if folder.startswith(f"{workspace.path}/")}
        if allowance.links:
            allowance.links = {link for link in allowance.links if inside(workspace.path, link)}
        return found

    def _operators_of(self, owner_uid: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(homes, settings of git's) of those who use git in the workspaces of this owner."""
        homes = tuple(dict.fromkeys(home for home in (self._home, *homes_of(owner_uid)) if home))
        own = (f"{home}/{name}" for home in homes for name in GIT_FILES)
        found = self._operators[owner_uid] = homes, tuple(dict.fromkeys((*self._git_files, *own)))
        return found

    def _find_workspace(self, text: str) -> WorkspaceSight:
        if not text:
            return WorkspaceSight(path="", problem="No workspace was given.")
        try:
            end = follow_links(text, "/" if text.startswith("/") else os.getcwd())
            status = os.stat(end.path)
        except (OSError, ValueError):
            return WorkspaceSight(path="", problem=f"The workspace {text[:200]!r} does not exist or cannot be entered.")
        if not stat.S_ISDIR(status.st_mode):
            return WorkspaceSight(path="", problem="The workspace is not a folder.")
        problem = workspace_problem(end.path, home=self._home, state_home=self._state_home)
        if end.links and not problem:  # doors resolve it once: a link there now came since, perhaps from an agent
            problem = "The workspace's path leads through a link, which was not there when the run began."
        return WorkspaceSight(
            path=end.path,
            problem=problem,
            owner_uid=status.st_uid,
            owner_gid=status.st_gid,
            open_to_all=status.st_uid != 0 or os.geteuid() != 0 or _is_open_to_all(end.path, status),
        )

    # ── executables ──────────────────────────────────────────────────────────

    def _look_at_program(self, name: str, search_path: tuple[str, ...], workspace: str) -> ExecutableSight:
        known = self._found.get((name, search_path, workspace))
        if known is not None and not has_changed(known[0]):
            return known[1]
        visited: list[str] = []
        sight = self._find(name, search_path, workspace, visited)
        known_digest = bool(sight.sha256) and self._is_known(sight.path)
        if known_digest and {sight.path, sight.found_at or sight.path} <= set(visited):
            trail = take_trail(visited)
            if self._find(name, search_path, workspace, visited) == sight:  # nothing moved while the trail was taken
                self._found[name, search_path, workspace] = trail, sight
                while len(self._found) > MAX_DIGESTS:
                    del self._found[next(iter(self._found))]
        return sight

    def _find(self, name: str, search_path: Sequence[str], workspace: str, visited: list[str]) -> ExecutableSight:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            return ExecutableSight(name=name, path="")
        for folder in search_path:
            if not folder.startswith("/"):
                continue  # a relative entry would search the workspace
            path = f"{folder.rstrip('/')}/{name}"
            end = follow_links(path, "/", visited=visited)
            try:
                status = os.stat(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                return self._describe(name, path, workspace, end)
        return ExecutableSight(name=name, path="")

    def _describe(self, name: str, path: str, workspace: str, end: End) -> ExecutableSight:
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
                if _identity(os.fstat(descriptor)) == key and not has_writers(descriptor):
                    self._digests[key] = known
                    while len(self._digests) > MAX_DIGESTS:
                        del self._digests[next(iter(self._digests))]
            return known
        except OSError:
            return "", ""
        finally:
            os.close(descriptor)

    def _is_known(self, path: str) -> bool:
        try:
            return _identity(os.stat(path)) in self._digests
        except (OSError, ValueError):
            return False


def _look_at_git(request: LookRequest, workspace: WorkspaceSight) -> tuple[str, tuple[str, ...]]:
    if not workspace.path or not any(normalise(name) == "git" for name in (request.command, *request.also)):
        return "", ()
    from palyra.guard.githooks import obeys_hooks_path
    from palyra.guard.gitreport import reports_of
    from palyra.guard.look_git import look_at_git, look_at_steps

    recurses = any("--recursive" in word for word in request.args)
    reports = reports_of(request.command, request.args)
    hooks = not obeys_hooks_path(request.command, request.args)
    return look_at_git(workspace, recurses=recurses, reports=reports, hooks=hooks), look_at_steps(workspace)


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


def _is_open_to_all(folder: str, status: os.stat_result) -> bool:
    """By modes alone, as for a user who owns nothing."""
    if status.st_mode & 0o005 != 0o005:
        return False
    above = folder
    while above != "/":
        above = os.path.dirname(above)
        if not os.stat(above).st_mode & 0o001:
            return False
    return True
