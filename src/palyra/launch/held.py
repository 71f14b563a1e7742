"""A held sandbox: everything up to the program itself, started, verified, waiting for its one message.

`start_held(template)` makes one, cold now, ahead of time in a pool; each is used once. Order: 1 pipes and data,
2 spawn from this thread, 3 learn which processes are inside and open the listeners of its network, 4 bound their number
where pid_max does it, 5 wait until the shell says it is ready, 6 verify (descriptors, mounts, the workspace), 7 into
its cgroup. Nothing foreign has run when this returns; whatever fails on the way ends every process and closes every
descriptor.

Not here: what is verified and how (verifying), what the shell is told (message), limits (limits), the end (ending).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from palyra.launch import _os
from palyra.launch.cgroup import Group, GroupSpec, group_of, make_group
from palyra.launch.entering import enter
from palyra.launch.executor import LaunchFailed, WorkspaceMoved
from palyra.launch.host_files import Seen, identity
from palyra.launch.jobs import Jobs
from palyra.launch.limits import Ceilings, own_limits
from palyra.launch.message import CONTROL, HELD_SCRIPT, READY
from palyra.launch.network import close_listeners
from palyra.launch.verifying import Identified, difference, shown_folders
from palyra.model.face import Listener, NetFace
from palyra.model.plan import Hole, LandlockRules, ProcessPlan, Word
from palyra.sandbox.backend import BLOCK, INFO, namespace_pid_max
from palyra.sandbox.mounts import workspace_of, workspace_source
from palyra.sandbox.starter import is_started_by_it
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.launch._os._confine import Domain
    from palyra.launch.telling import Order

START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What of a plan a sandbox needs before it knows its call. Two equal templates can serve each other's calls."""

    launcher: tuple[Word, ...]
    data: tuple[bytes, ...]
    closed: tuple[tuple[str, str], ...]
    run_as: tuple[int, int] | None
    no_new_privileges: bool
    pid_namespace: bool
    pid_max: int
    """0: not bounded that way."""
    landlock: LandlockRules | None
    seccomp: bytes
    group: GroupSpec | None
    face: NetFace | None = None
    caches: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    host_files: Seen = ()
    """What of the host was copied into the folder it shows as /etc, as it was then."""
    workspace_source: str = field(init=False, repr=False, compare=False, default="")
    """The folder of the host that it shows as its workspace; empty without a namespace."""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Once: a pool looks a template up several times a call."""
        if self.pid_namespace:
            object.__setattr__(self, "workspace_source", workspace_source(self.launcher))
        told = (self.launcher, self.data, self.closed, self.run_as, self.pid_max, self.landlock, self.group, self.face)
        object.__setattr__(self, "_hash", hash(told))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_started_by_us(self) -> bool:
        """By the start program, which closes what leaked into it and sets every limit itself; else by a shell."""
        return is_started_by_it(self.launcher)

    @property
    def can_be_let_go_late(self) -> bool:
        """The launcher waits, and the start program tells how the program ended, which nobody else sees then."""
        return self.pid_namespace and self.is_started_by_us and self.group is None


def template_of(plan: ProcessPlan) -> Template:
    if plan.road != "held":
        raise LaunchFailed(f"A {plan.backend} sandbox cannot be started before its program is known.")
    return Template(
        launcher=plan.launcher,
        data=plan.data,
        closed=plan.closed,
        run_as=plan.run_as,
        no_new_privileges=plan.no_new_privileges,
        pid_namespace=plan.pid_namespace,
        pid_max=namespace_pid_max(plan.limits.processes) if plan.namespace_pid_max else 0,
        landlock=plan.landlock,
        seccomp=plan.seccomp,
        group=group_of(plan),
        face=plan.face,
        caches=plan.caches,
        granted=plan.granted,
    )


class Held:
    """The processes and descriptors of one held sandbox. Plain state; `ending` takes it apart."""

    __slots__ = ("began", "block", "ceilings", "control", "cut_off", "domain", "emptied", "group", "host_files",
                 "host_table", "info", "init", "init_fd", "launcher_stays", "listeners", "mounts_fd", "namespaced",
                 "order", "pid", "pid_fd", "program", "program_fd", "ready", "said", "setup_cpu_us", "shown",
                 "status", "stderr", "stdin", "stdout", "table", "workspace")  # fmt: skip

    def __init__(self) -> None:
        self.namespaced = False
        """Whether there is, or will be, a first process inside; known before that process is."""
        self.pid = self.init = self.program = 0
        """Our child; the first process inside (0 without a namespace); what becomes the program."""
        self.pid_fd = self.init_fd = self.program_fd = -1
        self.mounts_fd = -1
        """Its mount namespace; whoever holds it last takes its mounts apart (leftovers)."""
        self.control = self.stdin = self.stdout = self.stderr = -1
        self.ready = self.info = self.block = -1
        """Where it says that it waits, where the launcher says who is inside, and where the launcher itself waits: open
        while it is being made, and until it has ended where the launcher is let go only when the program is known."""
        self.status: int | None = None
        """The program's wait status, once it was seen."""
        self.said = b""
        """What was read of its first process's words."""
        self.ceilings: Ceilings = ()
        """The limits it inherited."""
        self.order: Order | None = None
        """What it will be told, where that is known before it is ready."""
        self.domain: Domain | None = None
        self.workspace: tuple[int, int] | None = None
        """(device, inode) of the folder it may write, as it was verified; None where its files are not confined."""
        self.table = ""
        """Its mount table as it was verified."""
        self.host_files: Seen = ()
        """What of the host its /etc, and settings in its workspace, were copied from."""
        self.host_table = ""
        """The host's mount table as it was while it was being made."""
        self.shown: tuple[Identified, ...] = ()
        """Folders of the host it shows beside the system's, as they were before it was made; for one that waits."""
        self.group: Group | None = None
        self.began: tuple[int, float] = (0, 0.0)
        """The last number given to any process when the program was told to begin, and when that was."""
        self.emptied = False
        """Nobody is left in its domain."""
        self.launcher_stays = False
        """Everything inside is gone, and our launcher, which ends by itself then, is left to `leftovers`."""
        self.cut_off = False
        """The program has ended and everything else was killed at once."""
        self.listeners: tuple[Listener, ...] = ()
        """Of its network, open and not yet served; empty where nothing is granted."""
        self.setup_cpu_us = 0
        """CPU time the sandbox's first process used before the program began."""

    def take(self, name: str) -> int:
        """Hand a descriptor over to someone who will close it."""
        fd: int = getattr(self, name)
        setattr(self, name, -1)
        return fd

    def take_listeners(self) -> tuple[Listener, ...]:
        """Hand them over to whoever will serve and close them."""
        taken, self.listeners = self.listeners, ()
        return taken

    def take_rest(self) -> list[int]:
        """Hand all that is still open over to someone who will close it, but for our child's own descriptor."""
        rest = [self.init_fd, self.program_fd, self.mounts_fd, self.control, self.stdin, self.stdout, self.stderr,
                self.ready, self.info, self.block]  # fmt: skip
        self.init_fd = self.program_fd = self.mounts_fd = self.control = -1
        self.stdin = self.stdout = self.stderr = self.ready = self.info = self.block = -1
        return [fd for fd in rest if fd >= 0]

    def let_go_of_mounts(self) -> None:
        """From now on they end with the sandbox's first process."""
        if self.mounts_fd >= 0:
            os.close(self.take("mounts_fd"))

    def close(self) -> None:
        if self.listeners:
            close_listeners(self.take_listeners())
        if self.domain is not None:
            self.domain.close()
            self.domain = None
        _close_all(self.pid_fd, self.init_fd, self.program_fd, self.mounts_fd, self.control)
        _close_all(self.stdin, self.stdout, self.stderr)
        self.pid_fd = self.init_fd = self.program_fd = self.mounts_fd = self.control = -1
        self.stdin = self.stdout = self.stderr = -1
        self.let_go_of_launcher(listens=False)

    def let_go_of_launcher(self, *, listens: bool) -> None:
        """`listens`: its first process is ours, and says how the program ended: not every kernel tells that."""
        _close_all(self.info, self.block, -1 if listens else self.ready)
        self.info = self.block = -1
        if not listens:
            self.ready = -1


def _close_all(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                continue


async def start_held(
    template: Template,
    *,
    shell: str,
    name: str,
    jobs: Jobs,
    abandon: Callable[[Held], Awaitable[None]],
    open_data: Callable[[bytes], int] = _os.memory_file,
    meanwhile: Callable[[Held], None] | None = None,
    is_alone: bool = False,
    is_known: bool = False,
    keeps_usage: bool = False,
) -> Held:
    """Raises LaunchFailed with what the launcher said. `name` is unique; `abandon` ends a half-started one; `open_data`
    makes a descriptor that reads these bytes; `meanwhile` is done while the launcher is busy.
    `is_alone`: a call waits for it and nothing else runs, so its mounts are waited for in place: the loop's own clock
    is coarser than what is left to wait for. `is_known`: so is the program, and nobody else will have this sandbox:
    everything is verified while the launcher waits, and it goes on when the program's message is there (`begin`).
    `keeps_usage`: what its first process used is to come to us, and not to the launcher, which is stopped then."""
    held = Held()
    held.namespaced, held.host_files = template.pid_namespace, (*template.host_files, *_copied(template))
    if not is_known:
        held.shown = shown_folders(template)
    is_known = is_known and template.can_be_let_go_late
    try:
        _spawn(held, template, shell, open_data)
        if meanwhile is not None:
            meanwhile(held)
        async with asyncio.timeout(START_TIMEOUT_S):
            await enter(held, template, jobs, is_alone=is_alone, is_known=is_known)
        if not is_known:
            _verify(held, template)
            held.let_go_of_launcher(listens=template.pid_namespace and template.is_started_by_us)
            if keeps_usage and template.pid_namespace:
                _os.send_signal(held.pid_fd, signal.SIGSTOP)
        if template.group is not None:
            held.group = make_group(template.group, name)
            held.group.add(held.program)
    except TimeoutError as error:
        await abandon(held)
        raise LaunchFailed(f"The sandbox was not ready after {START_TIMEOUT_S:.0f} s.") from error
    except (LaunchFailed, OSError) as error:
        said = _said(held)  # the launcher knows best why it gave up
        await abandon(held)
        if isinstance(error, LaunchFailed) and not said:
            raise
        raise LaunchFailed(said or f"The sandbox could not be started: {error}.") from error
    except BaseException:
        await abandon(held)
        raise
    return held


def _copied(template: Template) -> Seen:
    """What of the workspace will be shown as a copy: one that was made of other bytes is not used."""
    paths = [path for kind, path in template.closed if kind == "copied"]
    inside = workspace_of(template.launcher) if paths else ""
    return tuple((host, identity(host)) for host in (template.workspace_source + path[len(inside) :] for path in paths))


def _spawn(held: Held, template: Template, shell: str, open_data: Callable[[bytes], int]) -> None:
    """1, 2."""
    theirs: list[int] = []
    for folder in template.caches:
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def pipe(*, child_reads: bool) -> tuple[int, int]:
        """(theirs, ours)"""
        read, write = _os.pipe()
        pair = (read, write) if child_reads else (write, read)
        theirs.append(pair[0])
        return pair

    try:
        stdin, held.stdin = pipe(child_reads=True)
        stdout, held.stdout = pipe(child_reads=False)
        stderr, held.stderr = pipe(child_reads=False)
        control, held.control = pipe(child_reads=True)
        if template.is_started_by_us:
            ready, held.ready = _os.line()
            theirs.append(ready)
        else:
            ready, held.ready = pipe(child_reads=False)
        for fd in (stdin, stdout, stderr, control):
            if template.run_as is not None:  # opening /dev/fd/9 or /dev/stderr asks for permission on the pipe itself
                os.fchown(fd, *template.run_as)
        files = []
        for data in template.data:
            files.append(open_data(data))
            theirs.append(files[-1])  # each is closed even if the next fails
        keep, pipes = [*files], {}
        holes = [word for word in template.launcher if not isinstance(word, str)]  # each word compared would be a call
        if INFO in holes:
            pipes[INFO], held.info = pipe(child_reads=False)
            pipes[BLOCK], held.block = pipe(child_reads=True)
            keep += pipes.values()
            # Our end too: a launcher that nobody listens to any more would end in the middle of its word, and the first
            # process inside, which waits for it, would wait for ever. So it goes on, and finds no message there.
            keep += [held.info] if template.is_started_by_us else []  # which closes it
        waiting = () if template.is_started_by_us else (shell, "-c", HELD_SCRIPT)
        argv = [*_filled(template.launcher, files, pipes), *waiting]
        _start(held, template, argv, {0: stdin, 1: stdout, 2: stderr, READY: ready, CONTROL: control}, keep, shell)
        held.pid_fd = os.pidfd_open(held.pid)
    finally:
        for fd in theirs:
            os.close(fd)


def _start(
    held: Held, template: Template, argv: Sequence[str], places: dict[int, int], keep: Sequence[int], shell: str
) -> None:
    held.ceilings = own_limits()
    # The start program does, and bubblewrap's first process: nothing else runs before them.
    closes_others = template.is_started_by_us
    if template.pid_namespace or not template.no_new_privileges:
        held.pid = _os.spawn(argv, places=places, keep=keep, closes_others=closes_others)
        return
    confined = _os.spawn_confined(
        argv,
        places=places,
        keep=keep,
        drop_capabilities=os.getuid() == 0 and template.run_as is None,
        landlock=template.landlock,
        seccomp=template.seccomp,
        closes_others=closes_others,
        shell=shell,
    )
    held.pid, held.domain, held.workspace = confined.pid, confined.domain, confined.workspace
    _os.let_go_first(held.pid)


def _filled(words: tuple[Word, ...], files: Sequence[int], pipes: dict[Hole, int]) -> list[str]:
    def filled(hole: Hole) -> str:
        number = pipes[hole] if hole in pipes else files[hole.index]
        return f"/proc/self/fd/{number}" if hole.path else str(number)

    return [filled(word) if isinstance(word, Hole) else word for word in words]


def _verify(held: Held, template: Template) -> None:
    """6. What posix_spawn and the launcher did, checked where no other thread or program can change it any more."""
    if not template.is_started_by_us:
        pipes = (held.stdin, held.stdout, held.stderr, held.control, held.ready)
        strays = _os.stray_descriptors(held.program, pipes)
        if strays:
            raise LaunchFailed(f"An open file of this process leaked into the sandbox: {strays[0]}.")
    changed = difference(held, template, held.program)
    if changed:
        raise WorkspaceMoved(changed)


def _said(held: Held) -> str:
    """The first line the launcher wrote, if it wrote one."""
    if held.stderr < 0:
        return ""
    os.set_blocking(held.stderr, False)
    with contextlib.suppress(OSError):
        return os.read(held.stderr, 4096).decode("utf-8", "replace").strip().split("\n")[0][:500]
    return ""
