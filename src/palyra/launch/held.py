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
import fcntl
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from palyra.launch import _os
from palyra.launch.cgroup import Group, GroupSpec, group_of, make_group
from palyra.launch.executor import LaunchFailed
from palyra.launch.jobs import Jobs, ended_well
from palyra.launch.message import CONTROL, HELD_SCRIPT, READY
from palyra.launch.network import close_listeners, open_listeners
from palyra.launch.verifying import difference, in_new_root, misplaced, mountinfo
from palyra.launch.waiting import has_ended, pause, readable, unbroken
from palyra.model.face import Listener, NetFace
from palyra.model.plan import Hole, LandlockRules, ProcessPlan, Word
from palyra.sandbox.backend import BLOCK, INFO, namespace_pid_max
from palyra.sandbox.mounts import first_stranger, is_finished
from palyra.sandbox.starter import is_started_by_it
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.launch._os._confine import Domain

START_TIMEOUT_S = 20.0
_MOUNT_STEP_S = 0.0005
_BRIEF_STEP_S = 0.0002
_BRIEF_STEPS = 100
_NS_GET_USERNS = 0xB701
_PID_MAX = "/proc/sys/kernel/pid_max"
_ENDED = "The sandbox ended before it was ready."


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
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Once: a pool looks a template up several times a call."""
        told = (self.launcher, self.data, self.closed, self.run_as, self.pid_max, self.landlock, self.group, self.face)
        object.__setattr__(self, "_hash", hash(told))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_started_by_us(self) -> bool:
        """By the start program, which closes what leaked into it and sets every limit itself; else by a shell."""
        return is_started_by_it(self.launcher)


def template_of(plan: ProcessPlan) -> Template:
    if plan.road != "held":
        raise LaunchFailed(f"A {plan.backend} sandbox cannot be held until its program is known.")
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
    )


class Held:
    """The processes and descriptors of one held sandbox. Plain state; `ending` takes it apart."""

    __slots__ = ("began", "control", "cut_off", "domain", "emptied", "group", "init", "init_fd", "listeners",
                 "mounts_fd", "namespaced", "pid", "pid_fd", "program", "program_fd", "setup_cpu_us", "stderr",
                 "stdin", "stdout", "table", "workspace")  # fmt: skip

    def __init__(self) -> None:
        self.namespaced = False
        """Whether there is, or will be, a first process inside; known before that process is."""
        self.pid = self.init = self.program = 0
        """Our child; the first process inside (0 without a namespace); what becomes the program."""
        self.pid_fd = self.init_fd = self.program_fd = -1
        self.mounts_fd = -1
        """Its mount namespace; whoever holds it last takes its mounts apart (leftovers)."""
        self.control = self.stdin = self.stdout = self.stderr = -1
        self.domain: Domain | None = None
        self.workspace: tuple[int, int] | None = None
        """(device, inode) of the folder it may write, as it was verified; None where its files are not confined."""
        self.table = ""
        """Its mount table as it was verified."""
        self.group: Group | None = None
        self.began: tuple[int, float] = (0, 0.0)
        """The last number given to any process when the program was told to begin, and when that was."""
        self.emptied = False
        """Nobody is left in its domain."""
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

    def let_go_of_mounts(self) -> None:
        """From now on they end with the sandbox's first process."""
        if self.mounts_fd >= 0:
            os.close(self.take("mounts_fd"))

    def close(self) -> None:
        close_listeners(self.take_listeners())
        if self.domain is not None:
            self.domain.close()
            self.domain = None
        for name in ("pid_fd", "init_fd", "program_fd", "mounts_fd", "control", "stdin", "stdout", "stderr"):
            fd = self.take(name)
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)


async def start_held(
    template: Template,
    *,
    shell: str,
    name: str,
    jobs: Jobs,
    abandon: Callable[[Held], Awaitable[None]],
    is_alone: bool = False,
) -> Held:
    """Raises LaunchFailed with what the launcher said. `name` is unique; `abandon` ends a half-started one.
    `is_alone`: a call waits for it and nothing else runs, so its mounts are waited for in place: the loop's own clock
    is coarser than what is left to wait for."""
    held = Held()
    held.namespaced = template.pid_namespace
    ready = info = block = -1
    try:
        ready, info, block = _spawn(held, template, shell)
        async with asyncio.timeout(START_TIMEOUT_S):
            await _enter(held, template, jobs, ready=ready, info=info, block=block, is_alone=is_alone)
        _verify(held, template, ready)
        if template.group is not None:
            held.group = make_group(template.group, name)
            held.group.add(held.program)
    except TimeoutError as error:
        await abandon(held)
        raise LaunchFailed(f"The sandbox was not ready after {START_TIMEOUT_S:.0f} s.") from error
    except (LaunchFailed, OSError) as error:
        said = _said(held)  # the launcher knows best why it gave up
        await abandon(held)
        reason = str(error) if isinstance(error, LaunchFailed) else f"The sandbox could not be started: {error}."
        raise LaunchFailed(said or reason) from error
    except BaseException:
        await abandon(held)
        raise
    finally:
        for fd in (ready, info, block):
            if fd >= 0:
                os.close(fd)
    return held


def _spawn(held: Held, template: Template, shell: str) -> tuple[int, int, int]:
    """1, 2. Returns where the shell says "ready", where the launcher says who is inside, and where it waits."""
    theirs: list[int] = []
    ours: list[int] = []
    for folder in template.caches:
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def pipe(*, child_reads: bool) -> tuple[int, int]:
        """(theirs, ours)"""
        read, write = _os.pipe()
        pair = (read, write) if child_reads else (write, read)
        theirs.append(pair[0])
        ours.append(pair[1])
        return pair

    try:
        stdin, held.stdin = pipe(child_reads=True)
        stdout, held.stdout = pipe(child_reads=False)
        stderr, held.stderr = pipe(child_reads=False)
        control, held.control = pipe(child_reads=True)
        ready, our_ready = pipe(child_reads=False)
        info, our_info = pipe(child_reads=False)
        block, our_block = pipe(child_reads=True)
        for fd in (stdin, stdout, stderr, control):
            if template.run_as is not None:  # opening /dev/fd/9 or /dev/stderr asks for permission on the pipe itself
                os.fchown(fd, *template.run_as)
        for data in template.data:
            theirs.append(_os.memory_file(data))  # noqa: PERF401  # each is closed even if the next fails
        files = theirs[-len(template.data) :] if template.data else []
        waiting = () if template.is_started_by_us else (shell, "-c", HELD_SCRIPT)
        argv = [*_filled(template.launcher, files, {INFO: info, BLOCK: block}), *waiting]
        places = {0: stdin, 1: stdout, 2: stderr, READY: ready, CONTROL: control}
        keep = [*files, info, block] if INFO in template.launcher else files
        _start(held, template, argv, places, keep)
        held.pid_fd = os.pidfd_open(held.pid)
    except BaseException:
        for fd in ours[4:]:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return our_ready, our_info, our_block


def _start(held: Held, template: Template, argv: Sequence[str], places: dict[int, int], keep: Sequence[int]) -> None:
    if template.pid_namespace or not template.no_new_privileges:
        held.pid = _os.spawn(argv, places=places, keep=keep)
        return
    confined = _os.spawn_confined(
        argv,
        places=places,
        keep=keep,
        drop_capabilities=os.getuid() == 0 and template.run_as is None,
        landlock=template.landlock,
        seccomp=template.seccomp,
    )
    held.pid, held.domain, held.workspace = confined.pid, confined.domain, confined.workspace
    _os.let_go_first(held.pid)


def _filled(words: tuple[Word, ...], files: Sequence[int], pipes: dict[Hole, int]) -> list[str]:
    def filled(hole: Hole) -> str:
        number = pipes[hole] if hole in pipes else files[hole.index]
        return f"/proc/self/fd/{number}" if hole.path else str(number)

    return [filled(word) if isinstance(word, Hole) else word for word in words]


async def _enter(
    held: Held, template: Template, jobs: Jobs, *, ready: int, info: int, block: int, is_alone: bool
) -> None:
    """3, 4, 5."""
    bounding: asyncio.Task[bool] | None = None
    try:
        if template.pid_namespace:
            await _learn_init(held, info)
            if template.pid_max:  # while the launcher is busy with its mounts; nothing runs inside before it is done
                bounding = asyncio.create_task(_bound_pids(held, template, jobs))
            await _check_mounts(held, template, jobs, is_alone=is_alone)
            if template.face is not None:
                held.listeners = await open_listeners(held.init, template.face, jobs.run)
            os.write(block, b"x")
        if not (await _read(ready)).startswith(b"r"):
            raise LaunchFailed(_ENDED)
    finally:  # even when cancelled: a process of ours in there would keep the dying namespace from ending
        bounded = bounding is None or await unbroken(_outcome_of(bounding))
    if not bounded:
        raise LaunchFailed("The sandbox's pid_max could not be set.")
    held.program = held.pid
    if template.pid_namespace:
        inside = _os.children(held.init)
        if len(inside) != 1:
            raise LaunchFailed("The sandbox does not hold exactly one process.")
        held.program = inside[0]
        held.setup_cpu_us = _os.cpu_us(held.init)
        held.mounts_fd = os.open(f"/proc/{held.init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    held.program_fd = os.pidfd_open(held.program)
    if template.pid_namespace and _os.parent(held.program) != held.init:
        raise LaunchFailed(_ENDED)


async def _learn_init(held: Held, info: int) -> None:
    text = b""
    while chunk := await _read(info):
        text += chunk
    if not text:
        raise LaunchFailed(_ENDED)
    held.init = int(json.loads(text)["child-pid"])
    held.init_fd = os.pidfd_open(held.init)
    _os.expect(held.init)
    if _os.parent(held.init) != held.pid:  # a pid that was reused before its pidfd was opened
        raise LaunchFailed(_ENDED)


async def _check_mounts(held: Held, template: Template, jobs: Jobs, *, is_alone: bool) -> None:
    """Before the launcher goes on, nothing has been exec'd inside: even the shell would come from what is mounted."""
    steps = _BRIEF_STEPS if is_alone else 0
    while not (in_new_root(held, template) and is_finished(table := mountinfo(held.init))):
        if has_ended(held.init_fd):
            raise LaunchFailed(_ENDED)
        if steps > 0:
            steps -= 1
            pause(_BRIEF_STEP_S)
        await asyncio.sleep(0 if steps > 0 else _MOUNT_STEP_S)
    changed = first_stranger(template.launcher, table, mountinfo(os.getpid()))
    if template.closed and not changed:
        await _close_paths(held, template, jobs)
    changed = changed or difference(held, template, held.init) or misplaced(held.init, template)
    if changed:
        raise LaunchFailed(f"The workspace changed while the sandbox was being made: {changed}.")


async def _close_paths(held: Held, template: Template, jobs: Jobs) -> None:
    mounts = os.open(f"/proc/{held.init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = -1
    try:
        owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
        given = json.dumps([[kind, os.fsencode(path).decode("latin-1")] for kind, path in template.closed])
        closed = await jobs.run("closing", [owner, mounts, given])
    finally:
        for fd in (mounts, owner):
            if fd >= 0:
                os.close(fd)
    if not closed:
        raise LaunchFailed("The workspace changed while the sandbox was being made: a path could not be closed.")


async def _bound_pids(held: Held, template: Template, jobs: Jobs) -> bool:
    """Our own short-lived child enters the namespace: the bound is written from outside, while nothing runs inside."""
    namespace = os.open(f"/proc/{held.init}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if jobs.are_quick:
            return await jobs.run("bounding", [namespace, str(template.pid_max)])
        shell = ["/bin/sh", "-c", f"echo {template.pid_max} > {_PID_MAX}"]
        return await ended_well(_os.spawn_in_namespace(namespace, shell))
    finally:
        os.close(namespace)


async def _outcome_of(bounding: asyncio.Task[bool]) -> bool:
    try:
        return await bounding
    except OSError:
        return False


def _verify(held: Held, template: Template, ready: int) -> None:
    """6. What posix_spawn and the launcher did, checked where no other thread or program can change it any more."""
    pipes = (held.stdin, held.stdout, held.stderr, held.control, ready)
    strays = () if template.is_started_by_us else _os.stray_descriptors(held.program, pipes)
    if strays:
        raise LaunchFailed(f"An open file of this process leaked into the sandbox: {strays[0]}.")
    changed = difference(held, template, held.program)
    if changed:
        raise LaunchFailed(f"The workspace changed while the sandbox was being made: {changed}.")


def _said(held: Held) -> str:
    """The first line the launcher wrote, if it wrote one."""
    if held.stderr < 0:
        return ""
    os.set_blocking(held.stderr, False)
    with contextlib.suppress(OSError):
        return os.read(held.stderr, 4096).decode("utf-8", "replace").strip().split("\n")[0][:500]
    return ""


async def _read(fd: int) -> bytes:
    await readable(fd)
    return os.read(fd, 4096)
