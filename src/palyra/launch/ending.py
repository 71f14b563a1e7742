"""The end of a held or running sandbox: every process gone, reaped, its usage read, every descriptor closed.

With a PID namespace, killing its first process kills the tree, and that process is gone only when all others
are: its pidfd is what is waited for, unless it is seen to be the last one inside. Where this process is a subreaper
the launcher is stopped meanwhile and killed last, so the namespace's first process always comes to us with the usage of
all that was waited for; where that process is ours it kills and collects the rest itself, and is given the time for it,
or what ran to the end would count for nothing. Elsewhere it is left to whoever inherits it and no usage is claimed.
Without a namespace: the call's Landlock
domain, else its cgroup; else its process group and session, which a double fork with setsid escapes, so that is claimed
nowhere.

A program inside a namespace is not our child: its wait status comes from its pidfd, on kernels before 6.15 in the words
of the first process inside, where that is ours, else from the launcher's exit code, in which a signal cannot be told
from a large exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from palyra.launch import _os
from palyra.launch.held import Held
from palyra.launch.waiting import ends_within, has_ended, readable_within
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.launch._os._confine import Domain

_GONE_TIMEOUT_S = 10.0
_LAUNCHER_TIMEOUT_S = 1.0
_STATUS_TRIES = 40
_STATUS_STEP_S = 0.0005
_SAID_BYTES = 5
_AT_ONCE_S = 0.005
_COLLECTED_AT_ONCE_S = 0.001
_COLLECTED_TIMEOUT_S = 1.0
"""How long the first process inside may take to collect everybody before it is killed with them."""
_DEAD = ("Z", "X", "")
"""States of a process that runs nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    exit_code: int | None = None
    signal: int | None = None
    cpu_us: int | None = None
    max_rss_bytes: int | None = None
    never_started: bool = False
    """Nothing of the program ran: the launcher itself failed."""
    out_of_memory: bool = False
    """The kernel killed something because the whole call used more than its group may."""
    survivors: str = ""
    """Why the tree could not be seen to end; empty when it was."""


def kill_tree(held: Held, *, subreaper: bool) -> None:
    half_started = not held.program
    _find_program(held)
    if held.pid_fd >= 0 and (subreaper or half_started or not held.namespaced):
        _os.send_signal(held.pid_fd, signal.SIGKILL)
    if held.init_fd >= 0:
        _os.send_signal(held.init_fd, signal.SIGKILL)
    if not held.namespaced and held.pid and not _kill_whole(held):
        _kill_session(held.pid)


def _kill_whole(held: Held) -> bool:
    if held.domain is not None and held.domain.kill_all():
        return True
    return held.group is not None and held.group.kill()


def ask_to_end(held: Held) -> None:
    """SIGTERM to the program; without a namespace to its whole group."""
    if held.init_fd >= 0:
        _find_program(held)
        if held.program_fd >= 0:
            _os.send_signal(held.program_fd, signal.SIGTERM)
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(held.pid, signal.SIGTERM)


def _find_program(held: Held) -> None:
    """Of a sandbox whose launcher was let go late: the oldest child of its first process, which ends when that ends."""
    if held.program_fd >= 0 or not held.program or held.program != held.init:
        return
    if held.status is not None or has_ended(held.init_fd):
        return
    for pid in _os.children(held.init)[:1]:
        fd = -1
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            if _os.parent(pid) == held.init:  # and not a number that was given to somebody else meanwhile
                held.program_fd, fd = fd, -1
        if fd >= 0:
            os.close(fd)


def cut_off(held: Held, *, subreaper: bool) -> None:
    """Of a program that has ended: kill the rest at once, so that the kernel takes the sandbox apart while the loop
    turns; `end` does what is left. The program's own status stays with its pidfd. Where the kernel does not tell it
    there, the launcher must end by itself, and nothing is done here."""
    if held.init_fd < 0:
        if held.domain is not None and held.group is None:
            held.emptied = _started_nobody(held)
            held.cut_off = held.emptied or held.domain.kill_all()
        return
    try:
        if held.program_fd >= 0 and held.status is None:
            held.status = _status_of(held)
            if held.status is None and not _os.tells_exits():
                return
    except _os.Unsupported:
        return
    if subreaper and _collects(held) and not tells_within(held, _COLLECTED_AT_ONCE_S):
        return
    held.cut_off = True
    if subreaper or not has_ended(held.init_fd):
        kill_tree(held, subreaper=subreaper)


def _collects(held: Held) -> bool:
    """Whether the first process inside is ours, and a program of its own runs or ran there: it tells how that ended
    when it has collected everybody."""
    return held.init_fd >= 0 and held.ready >= 0 and held.control < 0 and held.program > 0


async def _collected(held: Held, *, program_ended: bool) -> None:
    """The program's end is what the first process inside waits for; then it kills the others, in one step."""
    if not program_ended:
        _find_program(held)
        if held.program_fd < 0:
            return
        _os.send_signal(held.program_fd, signal.SIGKILL)
    await _gone(held.init_fd, _COLLECTED_TIMEOUT_S)


def _started_nobody(held: Held) -> bool:
    """Whether nothing on this machine was started since the program began: then it started nothing either, and nobody
    is left to kill. Only of one that ended at once: with time it could start so many that the numbers come round."""
    last, began = held.began
    return bool(last) and time.monotonic() - began < _AT_ONCE_S and _os.last_pid() == last


def is_told(held: Held, timeout_s: float) -> bool:
    """Whether the program's own end is known without its launcher: by its descriptor, or in the words of the first
    process inside, which come before that one's end."""
    if not held.cut_off or held.init_fd < 0:
        return False
    if held.program_fd >= 0 and (held.status is not None or _os.tells_exits()):
        return True
    if held.ready >= 0 and len(held.said) < _SAID_BYTES and ends_within(held.init_fd, timeout_s):
        _listen(held)
    return len(held.said) >= _SAID_BYTES


def tells_within(held: Held, timeout_s: float) -> bool:
    """Whether the first process inside tells within a moment how the program ended, of which nothing else is known, or
    ends itself. It says before that that it begins: how much has come is looked at each time."""
    until, poll = time.monotonic() + timeout_s, select.poll()
    poll.register(held.ready, select.POLLIN)
    poll.register(held.init_fd, select.POLLIN)
    while len(held.said) < _SAID_BYTES:
        came = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
        if not came or held.init_fd in came:
            return bool(came)
        if not _listen(held):
            return ends_within(held.init_fd, max(0.0, until - time.monotonic()))
    held.status = _told(held)[1]
    return True


def is_gone(held: Held, timeout_s: float) -> bool:
    """Whether all that `cut_off` killed ends within a moment, waited for in place. Then `end` waits for nothing."""
    if not held.cut_off or held.group is not None:
        return False
    gone = held.init_fd < 0 or _is_left_alone(held) or ends_within(held.init_fd, timeout_s)
    if held.domain is not None:
        held.emptied = held.emptied or is_empty(held.domain)
        gone = gone and held.emptied
    return gone and (held.launcher_stays or ends_within(held.pid_fd, timeout_s))


def _is_left_alone(held: Held) -> bool:
    """Whether of all processes inside only the first one is left: ours or the launcher's, which has nothing more to do
    and was sent its end. Whoever loses its parent in there becomes its child before that parent can be seen to have
    ended; so when it has no child there is nobody, and nobody can come. The kernel takes it apart while we go on."""
    return held.launcher_stays and held.status is not None and _os.is_childless(held.init)


def ended_with(status: int) -> Ended:
    code = os.waitstatus_to_exitcode(status)
    return Ended(exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)


def end_gone(held: Held, *, subreaper: bool) -> Ended:
    """Of a sandbox whose program ended and of which all `is_gone`: reap and close, with nothing to wait for."""
    try:
        ended = _reap(held, None, program_ended=True)
        if subreaper and not held.init:
            _os.reap_orphans()
    finally:
        held.close()
    return ended


async def end(held: Held, *, subreaper: bool, program_ended: bool) -> Ended:
    """Kill what is left, wait until it is gone, reap, close. Must not be cancelled: see `unbroken`. A launcher that
    stays is not waited for: the caller has taken it over."""
    held.let_go_of_mounts()
    status = None
    if subreaper and not held.cut_off and _collects(held):
        await _collected(held, program_ended=program_ended)
    if program_ended and held.init_fd >= 0 and not held.cut_off:
        status = await _program_status(held)
    cpu_us, out_of_memory = None, False
    if held.namespaced and held.init_fd < 0 and held.pid_fd >= 0:
        await _find_init(held)
    try:
        if not held.cut_off:
            kill_tree(held, subreaper=subreaper)
        gone = await _gone(held.init_fd, _GONE_TIMEOUT_S)
        if not await _gone(held.pid_fd, _LAUNCHER_TIMEOUT_S):  # by itself, so that it reaps what it can
            _os.send_signal(held.pid_fd, signal.SIGKILL)
            gone = await _gone(held.pid_fd, _GONE_TIMEOUT_S) and gone
        if held.domain is not None and not held.emptied:
            gone = await _emptied(held.domain) and gone
        if held.group is not None:
            cpu_us, out_of_memory = held.group.cpu_us(), held.group.ran_out_of_memory()
            gone = await held.group.remove(_GONE_TIMEOUT_S) and gone
        ended = _reap(held, status, program_ended=program_ended)
        if subreaper and not held.init:  # a namespace's orphans come to its own first process
            _os.reap_orphans()
    finally:
        held.close()
    if gone and cpu_us is None and not out_of_memory:
        return ended
    return replace(
        ended,
        cpu_us=ended.cpu_us if cpu_us is None else cpu_us,
        out_of_memory=out_of_memory,
        survivors="" if gone else "some processes of the call did not end in time",
    )


async def _find_init(held: Held) -> None:
    """Of a launcher that has not said yet whom it started. Killed alone at the wrong moment it would leave a child
    behind that waits for it for ever; stopped, it can start nothing more, and its child is in plain sight."""
    _os.send_signal(held.pid_fd, signal.SIGSTOP)
    for _ in range(_STATUS_TRIES):
        if _os.state(held.pid) in ("T", "Z", "X", ""):
            break
        await asyncio.sleep(_STATUS_STEP_S)
    for pid in _os.children(held.pid):
        with contextlib.suppress(OSError):
            held.init_fd = os.pidfd_open(pid)
            held.init = pid


def _status_of(held: Held) -> int | None:
    """The program's wait status, once the sandbox's first process has reaped it: by its own descriptor, or in the words
    of that process, where it is ours. None where nobody has told it yet, Unsupported where nobody will."""
    try:
        status = _os.exit_status(held.program_fd)
    except _os.Unsupported:
        if held.ready < 0:
            raise
        status = None
    if status is None and held.ready >= 0 and not _os.tells_exits():
        status = _told(held)[1]
    return status


async def _program_status(held: Held) -> int | None:
    try:
        for _ in range(_STATUS_TRIES):
            status = _status_of(held)
            if status is not None:
                return status
            await asyncio.sleep(_STATUS_STEP_S)
    except _os.Unsupported:
        pass
    _os.send_signal(held.pid_fd, signal.SIGCONT)
    await _gone(held.pid_fd, _LAUNCHER_TIMEOUT_S)  # then the launcher's own exit code is read when it is reaped
    return None


def _told(held: Held) -> tuple[bool, int | None]:
    """What the first process inside said: whether it began at all, and the program's wait status."""
    if len(held.said) < _SAID_BYTES:
        _listen(held)
    said = held.said
    return said[:1] == b"r", int.from_bytes(said[1:5], "little") if len(said) >= _SAID_BYTES else None


def _listen(held: Held) -> bytes:
    """What has come since; nothing where it has said all."""
    os.set_blocking(held.ready, False)
    more = b""
    with contextlib.suppress(OSError):
        more = os.read(held.ready, 64)
        held.said += more
    return more


def _reap(held: Held, status: int | None, *, program_ended: bool) -> Ended:
    began, told = _told(held) if held.ready >= 0 and held.program else (True, None)
    own = _os.reap(held.pid) if held.pid else None
    inner = _os.reap(held.init) if held.init else None  # ours as a subreaper, or as a container's first process
    status = held.status if status is None else status
    if status is None and own is not None and not held.init:  # the program was our own child
        status = own[0]
    if status is None and held.program_fd >= 0:
        with contextlib.suppress(_os.Unsupported):
            status = _os.exit_status(held.program_fd)
    status = told if status is None else status
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code is None and own is not None:
        code = os.waitstatus_to_exitcode(own[0])
        if held.init and (code < 0 or (held.ready >= 0 and began)):
            code = None  # the launcher's own end says nothing about the program, nor what became of a process of ours
    cpu_us, rss = _inner_usage(held, inner) if held.init else _child_usage(own)
    return Ended(
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        cpu_us=cpu_us,
        max_rss_bytes=rss,
        never_started=program_ended and not began,
    )


_Reaped: TypeAlias = "tuple[int, resource.struct_rusage] | None"


def _inner_usage(held: Held, inner: _Reaped) -> tuple[int | None, int | None]:
    if inner is None:
        return None, None
    return max(0, _cpu_us(inner[1]) - held.setup_cpu_us), inner[1].ru_maxrss * 1024


def _child_usage(own: _Reaped) -> tuple[int | None, int | None]:
    """The kernel starts a child's peak at its parent's, so a figure not above our own peak says nothing."""
    if own is None:
        return None, None
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _cpu_us(own[1]), own[1].ru_maxrss * 1024 if own[1].ru_maxrss > floor else None


def _cpu_us(usage: resource.struct_rusage) -> int:
    return round((usage.ru_utime + usage.ru_stime) * 1_000_000)


async def _gone(pidfd: int, timeout_s: float) -> bool:
    return pidfd < 0 or has_ended(pidfd) or await readable_within(pidfd, timeout_s)


def is_empty(domain: Domain) -> bool:
    return all(_os.state(pid) in _DEAD for pid in domain.inside(_os.all_pids()))


async def _emptied(domain: Domain) -> bool:
    """Everyone inside was sent SIGKILL and can start nobody any more, so one look that finds no one alive is enough."""
    clock = asyncio.get_running_loop().time
    until = clock() + _GONE_TIMEOUT_S
    while not is_empty(domain):
        if clock() > until:
            return False
        await asyncio.sleep(_STATUS_STEP_S)
    return True


def _kill_session(leader: int) -> None:
    """Best effort: the group, then whatever else is in the session. The leader is not reaped yet, so its number
    is still ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for pid, (_, session, _) in _os.process_ids().items():
        if session == leader and pid != leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
