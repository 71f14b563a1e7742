"""Linux: starting a child with exact descriptors, pidfds, and what /proc says about a process.

Rules: `spawn` is posix_spawn (no fork of a large parent, no Python between fork and exec), called from the
thread that stays, because bubblewrap's --die-with-parent follows the thread. posix_spawn closes nothing, so
every inheritable descriptor of this process is closed by name, and `stray_descriptors` lets the caller verify
in the child, where no other thread can interfere. no_new_privs belongs to a *thread* and passes through exec:
a throwaway thread enters it, spawns and ends, and the engine itself never has it.

Not here: what to start (held), when to kill it (process).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), its first 64 bytes
_PIDFD_INFO_EXIT = 1 << 3
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 38, 24, 36
_CLONE_FS, _CLONE_NEWPID = 0x200, 0x20000000
_LOWEST_FREE = 10
"""Numbers below are places in the child (stdio, ready, control); a source there could be overwritten."""


_started: set[int] = set()
"""Children of ours that nobody has reaped yet: what is not among them and comes to us is an orphan."""


class Unsupported(Exception):
    """This kernel cannot tell."""


def raised(fd: int) -> int:
    """The same open file under a number that no place in a child has. Closes the old number."""
    if fd >= _LOWEST_FREE:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FREE)
    finally:
        os.close(fd)


def pipe() -> tuple[int, int]:
    """(read end, write end), both raised."""
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        read = raised(read)
    except OSError:
        os.close(write)
        raise
    try:
        return read, raised(write)
    except OSError:
        os.close(read)
        raise


def memory_file(data: bytes) -> int:
    """An anonymous file that holds `data`, read from its start."""
    fd = raised(os.memfd_create("palyra", os.MFD_CLOEXEC))
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def spawn(argv: Sequence[str], *, places: Mapping[int, int], keep: Sequence[int] = ()) -> int:
    """Start argv with an empty environment, default signals, a session of its own and only these descriptors:
    `places` maps a number in the child to one of ours, `keep` keep their number."""
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in places.items()]
    actions += [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in keep]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable() - set(keep) - set(places)]
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        {},
        file_actions=actions,
        setsid=True,
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        setsigmask=(),
    )
    _started.add(pid)
    return pid


def spawn_confined(
    argv: Sequence[str], *, places: Mapping[int, int], keep: Sequence[int] = (), drop_capabilities: bool
) -> int:
    """The same with no_new_privs, from / (a folder of the engine's that the child may not enter would make the
    shell complain), and for a child that stays uid 0 without any capability."""

    def enter(libc: Any) -> None:
        _check(libc, libc.unshare(_CLONE_FS), "unshare")
        os.chdir("/")
        _check(libc, libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if drop_capabilities:
            _drop_bounding_set(libc)

    return _in_thread(enter, lambda: spawn(argv, places=places, keep=keep))


def spawn_in_namespace(namespace: int, argv: Sequence[str]) -> int:
    """Start argv in a PID namespace, given an open descriptor of it."""

    def enter(libc: Any) -> None:
        _check(libc, libc.setns(namespace, _CLONE_NEWPID), "setns")

    null = raised(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    try:
        return _in_thread(enter, lambda: spawn(argv, places={0: null, 1: null, 2: null}))
    finally:
        os.close(null)


def _in_thread(enter: Callable[[Any], None], start: Callable[[], int]) -> int:
    """What `enter` changes belongs to this one thread and to what it starts."""
    import ctypes  # costly to import, and only needed here

    libc = ctypes.CDLL(None, use_errno=True)
    results: list[int | BaseException] = []

    def work() -> None:
        try:
            enter(libc)
            results.append(start())
        except BaseException as error:  # noqa: BLE001  # carried over to the caller's thread
            results.append(error)

    thread = threading.Thread(target=work, name="palyra-spawn")
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def _check(libc: Any, result: int, what: str) -> None:
    if result:
        import ctypes

        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _drop_bounding_set(libc: Any) -> None:
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            return  # past the last one this kernel knows


def become_subreaper() -> None:
    """Orphans of our sandboxes come to this process, so their usage can be collected. Not in an embedder's process."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc, libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def expect(pid: int) -> None:
    """A grandchild that may become ours and that its own call will reap."""
    _started.add(pid)


def reap(pid: int) -> tuple[int, resource.struct_rusage] | None:
    """(wait status, usage) of a child that has ended; None when it has not, is not ours, or is reaped already."""
    try:
        reaped, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        _started.discard(pid)
        return None
    if not reaped:
        return None
    _started.discard(pid)
    return status, usage


def reap_orphans() -> None:
    """What a subreaper inherited from calls that left strays; they would stay zombies until it ends itself."""
    for pid in children(os.getpid()):
        if pid not in _started:
            reap(pid)


def _inheritable() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2:
            try:
                if os.get_inheritable(fd):
                    found.add(fd)
            except OSError:
                continue  # the listing's own descriptor, or closed by another thread since
    return found


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


def exit_status(pidfd: int) -> int | None:
    """The raw wait status of a process that is not our child; None until its parent has reaped it."""
    info = bytearray(struct.pack("=Q56x", _PIDFD_INFO_EXIT))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info, True)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return None
        raise Unsupported from error
    mask, status = struct.unpack_from("=Q", info)[0], struct.unpack_from("=i", info, 60)[0]
    if not mask & _PIDFD_INFO_EXIT:
        return None
    return int(status)


def send_signal(pidfd: int, number: int) -> None:
    """By pidfd, so a reused pid can never be hit."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


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


def parent(pid: int) -> int:
    return int(_stat(pid)[1])


def process_ids() -> dict[int, tuple[int, int, int]]:
    """pid → (uid, session, threads) of every process that can be seen."""
    found = {}
    for pid, fields in _all_stats():
        with contextlib.suppress(OSError):
            found[pid] = (os.stat(f"/proc/{pid}").st_uid, int(fields[3]), int(fields[17]))
    return found


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # ended since
                yield int(name), _stat(int(name))


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the third field on; the second may hold spaces and parentheses."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def kernel_at_least(major: int, minor: int) -> bool:
    numbers = os.uname().release.split("-")[0].split(".")
    try:
        return (int(numbers[0]), int(numbers[1])) >= (major, minor)
    except (ValueError, IndexError):
        return False
