"""Linux: what /proc says about processes. Reading only.

A process that ends meanwhile is simply not there; only where a caller names one process does its absence raise.

Not here: starting, signalling or reaping (_linux).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache

_STARTED = 19
"""Where the start time stands in what `_stat` returns."""


def stray_descriptors(pid: int, given: Sequence[int]) -> list[str]:
    """What a held process has open that it was not given (by our numbers) and that would survive its exec."""
    known = {os.readlink(f"/proc/self/fd/{fd}") for fd in given}
    strays = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since: the shell is still settling down
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target not in known and not _closes_on_exec(pid, name):
                strays.append(target)
    return strays


def _closes_on_exec(pid: int, name: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as info:
        for line in info:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & os.O_CLOEXEC)
    return False


def cpu_us(pid: int) -> int:
    """CPU time of one process so far, its own threads only."""
    return time.clock_gettime_ns(_cpu_clock(pid)) // 1000


def _cpu_clock(pid: int) -> int:
    return (~pid << 3) | 2  # the kernel's clock id for another process (clock_getcpuclockid)


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel built without that file, or the process is gone
        return [other for other, fields in _all_stats() if int(fields[1]) == pid]


def is_childless(pid: int) -> bool:
    """Whether a process has no child at this moment, dead ones that it has not reaped among them. That the list is
    empty is exact; how it goes on after its first is not. False where the kernel does not say."""
    return _first_bytes(f"/proc/{pid}/task/{pid}/children", 1) == b""


def parent(pid: int) -> int:
    return int(_stat(pid)[1])


def state(pid: int) -> str:
    """One letter, as ps shows it; empty when there is no such process."""
    try:
        return _stat(pid)[0]
    except OSError:
        return ""


def tasks_of(uid: int) -> int:
    """Processes and threads of one user. A process's task folder counts its threads as links: no file is read."""
    count = 0
    for pid in all_pids():
        with contextlib.suppress(OSError):  # ended since
            tasks = os.stat(f"/proc/{pid}/task")
            count += tasks.st_nlink - 2 if tasks.st_uid == uid else 0
    return count


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def last_pid() -> int:
    """The number that was given out last in our PID namespace, to a process or a thread; 0 where the kernel does not
    say."""
    return int(_first_bytes("/proc/sys/kernel/ns_last_pid", 32) or 0)


def process_ids() -> dict[int, tuple[int, int, int]]:
    """pid → (uid, session, threads) of every process that can be seen."""
    found = {}
    for pid, fields in _all_stats():
        with contextlib.suppress(OSError):
            found[pid] = (os.stat(f"/proc/{pid}").st_uid, int(fields[3]), int(fields[17]))
    return found


def _first_bytes(path: str, count: int) -> bytes | None:
    """None where it cannot be read. Without a file object: these are read while somebody waits for an answer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, count)
    except OSError:
        return None
    finally:
        os.close(fd)


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    for pid in all_pids():
        with contextlib.suppress(OSError):  # ended since
            yield pid, _stat(pid)


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the third field on; the second may hold spaces and parentheses."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def own_identity() -> str:
    """This process, told apart from any that has its number later, had it before, or has it in another namespace."""
    return f"{_boot_id()}.{_pid_namespace()}.{os.getpid()}.{_stat(os.getpid())[_STARTED]}"


def is_alive(identity: str) -> bool:
    """Whether the process of an `own_identity` may still run. One of another boot does not; of one in another PID
    namespace nothing can be known, so it counts as alive."""
    boot, namespace, pid, ticks = (*identity.split("."), "", "", "", "")[:4]
    if boot != _boot_id():
        return False
    if namespace != _pid_namespace():
        return True
    try:
        fields = _stat(int(pid))
    except (OSError, ValueError):
        return False
    return fields[_STARTED] == ticks and fields[0] not in ("Z", "X")


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


@lru_cache(maxsize=16)
def kernel_at_least(major: int, minor: int) -> bool:
    numbers = os.uname().release.split("-")[0].split(".")
    try:
        return (int(numbers[0]), int(numbers[1])) >= (major, minor)
    except (ValueError, IndexError):
        return False
