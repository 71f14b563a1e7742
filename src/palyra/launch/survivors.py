"""What is left of a background process whose keeper died: found by pid *and* start time, and killed.

In tier C nothing is left: a sandbox dies with the process that started it. In tier B the program goes on where it has
no guardian (`_os/_guardian`). A pid is only a number: a signal goes out by pidfd, after the start time behind that
pidfd was seen to be the recorded one, so a stranger who has the number by now is never hit. The session's members go
first, while their leader, stopped but alive, proves that the session is ours; the leader last. A group, where the host
has one, is killed whole.

`kill_strays` is for a keeper that keeps nothing any more: whatever is still its child is a stray of an ended process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from palyra.launch import _os
from palyra.launch.cgroup import Group
from palyra.launch.waiting import readable

_ROUNDS = 50
_GONE_TIMEOUT_S = 5.0
_STEP_S = 0.002


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when there is none, or only its remains."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def command_line(pid: int) -> bytes:
    """Empty when there is no such process any more."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(65536)
    except OSError:
        return b""


def open_exactly(pid: int, ticks: int) -> int | None:
    """A pidfd of the process with this number and this start time; None when that process is gone."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if start_ticks(pid) == ticks:  # read after the pidfd was opened: it cannot be somebody else's any more
        return fd
    os.close(fd)
    return None


async def kill_survivor(pid: int, ticks: int, cgroups: tuple[str, ...] = ()) -> bool:
    """End what is left of a process, its session and its groups. True when there was something."""
    killed = [Group(paths=(path,), kill_path=path).kill() for path in cgroups]
    found = any(killed) and await Group(paths=cgroups).remove(_GONE_TIMEOUT_S)
    leader = open_exactly(pid, ticks)
    if leader is None:
        return found
    try:
        _os.send_signal(leader, signal.SIGSTOP)  # it must neither go on nor end before the others have
        for _ in range(_ROUNDS):
            if start_ticks(pid) != ticks or not _kill_members(pid):
                break
            await asyncio.sleep(_STEP_S)
        _os.send_signal(leader, signal.SIGKILL)
        await _gone(leader)
    finally:
        os.close(leader)
    return True


def _kill_members(session: int) -> bool:
    """SIGKILL to everyone in the session but its leader; True when there was anyone."""
    members = [pid for pid, (_, its, _) in _os.process_ids().items() if its == session and pid != session]
    killed = False
    for pid in members:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                if os.getsid(pid) == session:  # asked again behind the pidfd: the number may be another's by now
                    _os.send_signal(fd, signal.SIGKILL)
                    killed = True
            finally:
                os.close(fd)
    return killed


async def _gone(pidfd: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_TIMEOUT_S):
            await readable(pidfd)


async def kill_strays() -> None:
    """Double forks of tier B programs come to their subreaper; they end with the last process it keeps."""
    for _ in range(_ROUNDS):
        strays = _os.children(os.getpid())
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # our own child until we reap it, so the number is its own
            _os.reap(pid)
        await asyncio.sleep(_STEP_S)
