"""From a launcher that was just started to a sandbox that waits: everything about it learnt, bounded and verified.

Order: 1 which process is the first one inside, 2 bound the number of processes (while the launcher is busy with its
mounts), 3 once its mounts are finished and it waits, nothing exec'd: is every one where the plan put it, and none
elsewhere? 4 close what of the workspace stays closed, open the listeners of its network, 5 let the launcher go on, and
wait until what it starts says that it waits; or leave it waiting, where the program is known already and its message
will be there when it goes on.

Not here: what is compared (verifying), starting the launcher (held), what runs inside a namespace (inside).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from typing import TYPE_CHECKING

from palyra.launch import _os
from palyra.launch.executor import LaunchFailed, WorkspaceMoved
from palyra.launch.host_files import is_unchanged
from palyra.launch.jobs import Jobs, ended_well
from palyra.launch.network import open_listeners
from palyra.launch.verifying import Outside, difference, in_new_root, look_outside, misplaced, mountinfo
from palyra.launch.waiting import has_ended, pause, readable, readable_in, unbroken
from palyra.sandbox.mounts import OWNED_BY_ROOT, first_stranger, first_unsealed, follows_host, is_finished
from palyra.sandbox.starter import MOUNTS, OWNER, assemble_parting, assemble_writer

if TYPE_CHECKING:
    from palyra.launch.held import Held, Template

_MOUNT_STEP_S = 0.0005
_FIRST_STEP_S = 0.00015
_FIRST_STEPS = 40
"""How long a launcher's first word is looked for in place."""
_BRIEF_STEP_S = 0.00002
_BRIEF_STEPS = 500
_NS_GET_USERNS = 0xB701
_PID_MAX = "/proc/sys/kernel/pid_max"
_ENDED = "The sandbox ended before it was ready."


async def enter(held: Held, template: Template, jobs: Jobs, *, is_alone: bool, is_known: bool) -> None:
    if template.pid_namespace:
        await _enter_namespaces(held, template, jobs, is_alone=is_alone)
        held.mounts_fd = os.open(f"/proc/{held.init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if is_known:
        held.setup_cpu_us = _os.cpu_us(held.init)
        return
    if template.pid_namespace:
        os.write(held.block, b"x")
    held.said = await _read(held.ready)
    if not held.said.startswith(b"r"):
        raise LaunchFailed(_ENDED)
    held.program = held.pid
    if template.pid_namespace:
        inside = _os.children(held.init)
        if len(inside) != 1:
            raise LaunchFailed("The sandbox does not contain exactly one process.")
        held.program = inside[0]
        held.setup_cpu_us = _os.cpu_us(held.init)
    held.program_fd = os.pidfd_open(held.program)
    if template.pid_namespace and _os.parent(held.program) != held.init:
        raise LaunchFailed(_ENDED)


async def _enter_namespaces(held: Held, template: Template, jobs: Jobs, *, is_alone: bool) -> None:
    bounding: asyncio.Task[bool] | None = None
    outside = look_outside(template)  # while the launcher starts
    held.host_table = outside.table
    if not is_unchanged(template.host_files):
        raise LaunchFailed("Files of the host's /etc changed while the sandbox was being made.")
    try:
        await _learn_init(held, is_alone=is_alone)
        if template.pid_max:
            bounding = asyncio.create_task(_bound_pids(held, template, jobs))
            await asyncio.sleep(0)  # it begins now
        await _check_mounts(held, template, outside, jobs, is_alone=is_alone)
        if template.face is not None:
            held.listeners = await open_listeners(held.init, template.face, jobs.run)
    finally:  # even when cancelled: a process of ours in there would keep the dying namespace from ending
        bounded = bounding is None or await _outcome_of(bounding)
    if not bounded:
        raise LaunchFailed("The sandbox's pid_max could not be set.")


async def _learn_init(held: Held, *, is_alone: bool) -> None:
    """Looked for again and again rather than waited for: a launcher that is waited for wakes us in the middle of its
    word, and if we are killed just then, it dies with us before it has let the first process inside go on."""
    text, steps = b"", _FIRST_STEPS if is_alone else 0
    while not text.rstrip().endswith(b"}"):
        if readable_in(held.info, 0.0):
            text += (chunk := os.read(held.info, 4096))
            if not chunk:  # it was killed before, or in the middle of, its first word
                raise LaunchFailed(_ENDED)
        elif steps > 0:
            steps -= 1
            pause(_FIRST_STEP_S)
        else:
            await asyncio.sleep(_MOUNT_STEP_S)
    held.init = int(json.loads(text)["child-pid"])
    held.init_fd = os.pidfd_open(held.init)
    _os.expect(held.init)
    if _os.parent(held.init) != held.pid:  # a pid that was reused before its pidfd was opened
        raise LaunchFailed(_ENDED)


async def _check_mounts(held: Held, template: Template, outside: Outside, jobs: Jobs, *, is_alone: bool) -> None:
    """Before the launcher goes on, nothing has been exec'd inside: even what waits would come from what is mounted."""
    steps = _BRIEF_STEPS if is_alone else 0
    while not (in_new_root(held, template) and is_finished(table := mountinfo(held.init))):
        if has_ended(held.init_fd):
            raise LaunchFailed(_ENDED)
        if steps > 0:
            steps -= 1
            pause(_BRIEF_STEP_S)
        await asyncio.sleep(0 if steps > 0 else _MOUNT_STEP_S)
    sealed = OWNED_BY_ROOT if template.run_as is None and os.geteuid() == 0 else ()
    if template.closed or sealed or follows_host(table):
        await _close_paths(held, template, jobs, sealed)
        table = mountinfo(held.init)
    if sealed:
        _os.let_go_first(held.init)  # which cannot say so itself any more: its /proc is read-only
        if unsealed := first_unsealed(sealed, table):
            raise LaunchFailed(f"The sandbox could not be closed: {unsealed}.")
    changed = first_stranger(template.launcher, table, outside.table, template.closed)
    changed = changed or difference(held, template, held.init, table) or misplaced(held.init, outside)
    if changed:
        raise WorkspaceMoved(changed)


async def _close_paths(held: Held, template: Template, jobs: Jobs, sealed: tuple[str, ...]) -> None:
    """And part the sandbox's mounts from the host's, and seal some, which is all there is to do where nothing is to be
    closed."""
    mounts = _os.raised(os.open(f"/proc/{held.init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
    owner = -1
    try:
        owner = _os.raised(fcntl.ioctl(mounts, _NS_GET_USERNS))
        if not template.closed and template.is_started_by_us:  # no interpreter has to be started for that
            parting = assemble_parting(os.uname().machine, sealed)
            closed = await unbroken(ended_well(_os.run_program(parting, {MOUNTS: mounts, OWNER: owner})))
        else:
            paths = (*(("sealed", path) for path in sealed), *template.closed)
            given = json.dumps([[kind, os.fsencode(path).decode("latin-1")] for kind, path in paths])
            closed = await jobs.run("closing", [owner, mounts, given])
    finally:
        for fd in (mounts, owner):
            if fd >= 0:
                os.close(fd)
    if not closed and template.closed:
        raise WorkspaceMoved("a path could not be closed")
    if not closed:
        raise LaunchFailed("The sandbox's mounts could not be parted from the host's.")


async def _bound_pids(held: Held, template: Template, jobs: Jobs) -> bool:
    """Our own short-lived child enters the namespace: the bound is written from outside, while nothing runs inside."""
    namespace = os.open(f"/proc/{held.init}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if template.is_started_by_us:  # so a file without a name can be run here
            writer = assemble_writer(os.uname().machine, _PID_MAX, str(template.pid_max).encode())
            return await ended_well(_os.run_in_namespace(namespace, writer))
        if jobs.are_quick:
            return await jobs.run("bounding", [namespace, str(template.pid_max)])
        shell = ["/bin/sh", "-c", f"echo {template.pid_max} > {_PID_MAX}"]
        return await ended_well(_os.spawn_in_namespace(namespace, shell))
    finally:
        os.close(namespace)


async def _outcome_of(bounding: asyncio.Task[bool]) -> bool:
    async def waited() -> bool:
        return await bounding

    try:
        return bounding.result() if bounding.done() else await unbroken(waited())
    except OSError:
        return False


async def _read(fd: int) -> bytes:
    if not readable_in(fd, 0.0):
        await readable(fd)
    return os.read(fd, 4096)
