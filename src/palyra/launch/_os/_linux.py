"""Linux: starting a child with exact descriptors, signalling it by pidfd, reaping it.

Rules: `spawn` is posix_spawn (no fork of a large parent, no Python between fork and exec), called from the
thread that stays, because bubblewrap's --die-with-parent follows the thread. posix_spawn closes nothing: either
what is started closes what it was not given before anything foreign runs, or every inheritable descriptor of this
process is closed by name, and `stray_descriptors` lets the caller verify in the child, where no other thread can
interfere. A plain child is started by a thread that confined itself first
(`_confine`); what such a thread enters is never the engine's.

Not here: what to start (held), when to kill it (process).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from palyra.launch._os._proc import children
from palyra.model.plan import LandlockRules

if TYPE_CHECKING:
    from palyra.launch._os._confine import Confined

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), its first 64 bytes
_PIDFD_INFO_EXIT = 1 << 3
_ASK_EXIT = struct.pack("=Q56x", _PIDFD_INFO_EXIT)
_ANSWER = struct.Struct("=Q52xi")
_PR_SET_CHILD_SUBREAPER = 36
_FIRST_TO_GO = "500"
_SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
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


def line() -> tuple[int, int]:
    """Two ends of a stream socket, both raised: unlike a pipe's, no other process can open them by name."""
    ends = [end.detach() for end in socket.socketpair()]
    try:
        ends[0] = raised(ends[0])
        ends[1] = raised(ends[1])
    except OSError:
        for fd in ends:
            with contextlib.suppress(OSError):
                os.close(fd)
        raise
    return ends[0], ends[1]


def memory_file(data: bytes) -> int:
    """An anonymous file that holds `data`, read from its start; nobody can change it any more."""
    fd = raised(os.memfd_create("palyra", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def opened_again(fd: int) -> int:
    """The same file, read from its start by somebody who shares no position with anybody else."""
    return raised(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))


def spawn(
    argv: Sequence[str],
    *,
    places: Mapping[int, int],
    keep: Sequence[int] = (),
    env: Sequence[tuple[str, str]] = (),
    closes_others: bool = False,
) -> int:
    """Start argv with this environment, default signals, a session of its own and only these descriptors: `places`
    maps a number in the child to one of ours, `keep` keep their number. `closes_others`: what is started closes all
    other descriptors itself, before anything foreign runs."""
    return _prepare(argv, places, keep, env, closes_others=closes_others)()


def _prepare(
    argv: Sequence[str],
    places: Mapping[int, int],
    keep: Sequence[int],
    env: Sequence[tuple[str, str]] = (),
    *,
    closes_others: bool = False,
) -> Callable[[], int]:
    """Everything that reads files is done here, so that what is returned can be called where none may be opened."""
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in places.items()]
    actions += [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in keep]
    if not closes_others:
        actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _closable(_inheritable() - set(keep) - set(places))]

    def start() -> int:
        pid = os.posix_spawn(
            argv[0], list(argv), dict(env), file_actions=actions, setsid=True, setsigdef=_SIGNALS, setsigmask=()
        )
        _started.add(pid)
        return pid

    return start


def spawn_confined(
    argv: Sequence[str],
    *,
    places: Mapping[int, int],
    keep: Sequence[int] = (),
    drop_capabilities: bool,
    landlock: LandlockRules | None = None,
    seccomp: bytes = b"",
    closes_others: bool = False,
    shell: str = "",
) -> Confined:
    """The same from / with no_new_privs, and what else the child must not have; see `_confine`. `shell`: what ends it
    when this process is killed (`_guardian`)."""
    from palyra.launch._os._confine import (  # needs ctypes, which is costly to import
        Confinement,
        begin_alone,
        enter_outer,
        start_confined,
    )
    from palyra.launch._os._guardian import Hands, start_guarded

    confinement = Confinement(drop_capabilities=drop_capabilities, landlock=landlock, seccomp=seccomp)
    hands = Hands(enter=enter_outer, spawn=lambda line: _spawn_guardian(shell, line), reap=reap)
    begin = (lambda thread: start_guarded(thread, hands)) if shell else begin_alone
    return start_confined(confinement, _prepare(argv, places, keep, closes_others=closes_others), begin)


def _spawn_guardian(shell: str, line: int) -> int:
    from palyra.launch._os._guardian import SCRIPT

    stdin, null = raised(os.dup(line)), -1
    try:
        null = raised(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        return spawn([shell, "-c", SCRIPT], places={0: stdin, 1: null, 2: null})
    finally:
        os.close(stdin)
        if null >= 0:
            os.close(null)


def let_go_first(pid: int) -> None:
    """When memory runs out the kernel ends this one before us. A confined child cannot ask for it itself."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(_FIRST_TO_GO)


def spawn_in_namespace(
    namespace: int, argv: Sequence[str], *, keep: Sequence[int] = (), closes_others: bool = False
) -> int:
    """Start argv in a PID namespace, given an open descriptor of it."""
    from palyra.launch._os._entering import start_in  # needs ctypes, which is costly to import

    null = raised(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    try:
        return start_in(namespace, _prepare(argv, {0: null, 1: null, 2: null}, keep, closes_others=closes_others))
    finally:
        os.close(null)


def end_helpers() -> None:
    """End the thread that enters namespaces, and what guards plain children, if there are any."""
    if (entering := sys.modules.get("palyra.launch._os._entering")) is not None:
        entering.end_thread()
    if (guarding := sys.modules.get("palyra.launch._os._guardian")) is not None:
        guarding.end_guardian()


def run_program(program: bytes, places: Mapping[int, int]) -> int:
    """Start a program of ours that has no file, starts nothing and ends at once; `places` as for `spawn`."""
    file = memory_file(program)
    try:
        return spawn([f"/proc/self/fd/{file}"], places=places, keep=[file], closes_others=True)
    finally:
        os.close(file)


def run_in_namespace(namespace: int, program: bytes) -> int:
    """The same in a PID namespace."""
    file = memory_file(program)
    try:
        return spawn_in_namespace(namespace, [f"/proc/self/fd/{file}"], keep=[file], closes_others=True)
    finally:
        os.close(file)


def _check(result: int, what: str) -> None:
    if result:
        import ctypes

        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def become_subreaper() -> None:
    """Orphans of our sandboxes come to this process, so their usage can be collected. Not in an embedder's process."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def expect(pid: int) -> None:
    """A grandchild that may become ours and that its own call will reap."""
    _started.add(pid)


def forget(pid: int) -> None:
    """One of those that its own parent will reap."""
    _started.discard(pid)


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


def reap_by_descriptor(pidfd: int, pid: int) -> bool:
    """The same without its usage, whatever has that number by now. False when it has not ended."""
    with contextlib.suppress(ChildProcessError):  # an embedder that waits for all its children was quicker
        if os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is None:
            return False
    _started.discard(pid)
    return True


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


def _closable(fds: set[int]) -> set[int]:
    """Without those above our own limit, which a lowered limit leaves open: no action may name them (EBADF). They are
    closed by their own flag instead; nobody who started us can have meant them for what we start."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for fd in fds:
        if fd >= limit:
            os.set_inheritable(fd, False)
    return {fd for fd in fds if fd < limit}


_told: list[bool] = [False]


def tells_exits() -> bool:
    """This kernel was seen to tell the status of a process that is not our child (Linux 6.15): a little older ones
    answer the same question, and never with that."""
    return _told[0]


def exit_status(pidfd: int) -> int | None:
    """The raw wait status of a process that is not our child; None until its parent has reaped it."""
    info = bytearray(_ASK_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return None
        raise Unsupported from error
    mask, status = _ANSWER.unpack(info)
    if not mask & _PIDFD_INFO_EXIT:
        return None
    _told[0] = True
    return int(status)


def send_signal(pidfd: int, number: int) -> None:
    """By pidfd, so a reused pid can never be hit."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return
