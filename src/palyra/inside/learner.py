"""Stands before a program in its sandbox and writes down which paths it asks for and cannot have there.

    python3 -I -S learner.py PROGRAM ARGV0 ARG…

A child enters a filter that stops at every call that names a path (seccomp, user notification), hands the listener over
and becomes the program. For each stop the path is read from its memory, tried from here, in the same sandbox, and the
call goes on as if nobody had looked: nothing is answered in the kernel's place, so a static program, a thread or a
grandchild is seen like any other, and none is given more than it had. What cannot be had is one line on stderr that
begins with `MARK`; the engine takes it out again.

What is written down is advice: a program that swaps a path in its memory, or prints such lines itself, deceives who
reads the advice, and gets nothing by it. Where the kernel has no such listener, or memory may not be read, nothing
runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
from typing import NamedTuple, NoReturn

MARK = b"\x1epalyra-learn "
MOST = 2000
"""Lines; then one that says there would be more."""
CANNOT = 125
_PATH_BYTES, _LINE_BYTES = 4096, 4000
_MACHINES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
"""Column of the table, AUDIT_ARCH, number of seccomp(2)."""
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_AT_FDCWD = 2**32 - 100
_SET_FILTER, _NEW_LISTENER, _NO_NEW_PRIVILEGES = 1, 8, 38
_RECEIVE, _ANSWER, _GO_ON = 0xC0502100, 0xC0182101, 1
_REQUEST, _REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_READ, _CLOSED = ("", "read once"), ("", "closed to us")
"""Beside the paths that were told: whose memory could be read, and that somebody's could not."""
_BEHIND = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}


class Call(NamedTuple):
    numbers: tuple[int | None, int | None]
    want: str
    path: int
    """Which argument."""
    folder: int = -1
    """Which argument is the folder it begins at; -1: the current one."""
    flags: int = -1
    """Which argument says whether it writes after all."""


CALLS = (
    Call((2, None), "read", 0, flags=1),  # open
    Call((257, 56), "read", 1, 0, 2),  # openat
    Call((4, None), "read", 0),  # stat
    Call((6, None), "read", 0),  # lstat
    Call((21, None), "read", 0),  # access
    Call((262, 79), "read", 1, 0),  # newfstatat
    Call((332, 291), "read", 1, 0),  # statx
    Call((269, 48), "read", 1, 0),  # faccessat
    Call((439, 439), "read", 1, 0),  # faccessat2
    Call((80, 49), "read", 0),  # chdir
    Call((59, 221), "run", 0),  # execve
    Call((322, 281), "run", 1, 0),  # execveat
    Call((85, None), "write", 0),  # creat
    Call((76, 45), "write", 0),  # truncate
    Call((83, None), "write", 0),  # mkdir
    Call((258, 34), "write", 1, 0),  # mkdirat
    Call((87, None), "write", 0),  # unlink
    Call((263, 35), "write", 1, 0),  # unlinkat
    Call((82, None), "write", 1),  # rename, where to
    Call((264, 38), "write", 3, 2),  # renameat
    Call((316, 276), "write", 3, 2),  # renameat2
    Call((265, 37), "write", 3, 2),  # linkat
    Call((266, 36), "write", 2, 1),  # symlinkat
)


def main(words: list[str]) -> NoReturn:
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        _give_up(f"programs cannot be watched on {platform.machine()}")
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _become(words, machine, theirs)
    theirs.close()
    listener = _take_listener(ours)
    for number in _BEHIND:
        signal.signal(number, lambda got, _: os.kill(child, got))
    try:
        _watch(listener, os.pidfd_open(child), machine[0])
    except PermissionError:
        os.kill(child, signal.SIGKILL)
        _give_up("the memory of its own child may not be read here (kernel.yama.ptrace_scope above 1?)")
    _end_like(os.waitpid(child, 0)[1])


# ── the child ────────────────────────────────────────────────────────────────


def _become(words: list[str], machine: tuple[int, int, int], line: socket.socket) -> NoReturn:
    listener = _enter_filter(machine)
    if listener < 0:
        line.send(os.strerror(-listener).encode())
        os._exit(CANNOT)
    socket.send_fds(line, [b"+"], [listener])
    os.close(listener)
    line.close()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; what it becomes must not
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(words[0], words[1:])  # noqa: S606  # that is what it is here for
    except OSError as error:
        os._exit(127 if error.errno == errno.ENOENT else 126)


def _enter_filter(machine: tuple[int, int, int]) -> int:
    """The listener's number, or a negative errno."""
    steps = ctypes.create_string_buffer(_filter(machine[0], machine[1]))
    program = ctypes.create_string_buffer(struct.pack("@HP", (len(steps) - 1) // 8, ctypes.addressof(steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener: int = libc.syscall(machine[2], _SET_FILTER, _NEW_LISTENER, program)
    return listener if listener >= 0 else -ctypes.get_errno()


def _filter(column: int, arch: int) -> bytes:
    """A foreign architecture is not watched: the sandbox's own filter has killed it before this one is asked."""
    numbers = [number for call in CALLS if (number := call.numbers[column]) is not None]
    steps = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 0, len(numbers) + 1, arch), (_LOAD, 0, 0, 0)]
    steps += [(_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in steps)


# ── the watcher ──────────────────────────────────────────────────────────────


def _take_listener(line: socket.socket) -> int:
    said, fds, _, _ = socket.recv_fds(line, 200, 1)
    if not fds:
        _give_up(f"the kernel gave no listener: {said.decode(errors='replace') or 'the child ended'}")
    line.close()
    return fds[0]


def _watch(listener: int, child: int, column: int) -> None:
    """Until the program itself has ended; what it left running ends with the sandbox."""
    calls = {number: call for call in CALLS if (number := call.numbers[column]) is not None}
    told: set[tuple[str, str]] = set()
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(child, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if ready.get(listener, 0) & select.POLLIN:
            _answer_one(listener, calls, told)
        elif child in ready:
            return
        elif listener in ready:  # everyone who was watched is gone; the child is about to be
            poll.unregister(listener)


def _answer_one(listener: int, calls: dict[int, Call], told: set[tuple[str, str]]) -> None:
    request = bytearray(_REQUEST.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, request)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):  # it was killed meanwhile
            return
        raise
    number, pid, _, which, _, _, *arguments = _REQUEST.unpack(request)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone: nothing to learn
        try:
            _judge(pid, calls[which], arguments, told)
        except PermissionError:  # a program may close its memory to others (PR_SET_DUMPABLE); none at all is our end
            if _READ not in told:
                raise
            if _CLOSED not in told:
                told.add(_CLOSED)
                _tell({"more": True})
    try:
        fcntl.ioctl(listener, _ANSWER, bytearray(_REPLY.pack(number, 0, 0, _GO_ON)))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _judge(pid: int, call: Call, arguments: list[int], told: set[tuple[str, str]]) -> None:
    raw = _text_at(pid, arguments[call.path])
    told.add(_READ)
    if not raw:
        return
    folder = arguments[call.folder] & 0xFFFFFFFF if call.folder >= 0 else _AT_FDCWD
    path = os.fsdecode(raw)
    if not path.startswith("/"):
        base = os.readlink(f"/proc/{pid}/cwd" if folder == _AT_FDCWD else f"/proc/{pid}/fd/{folder}")
        path = os.path.join(base, path)
    path = os.path.normpath(path)
    writes = call.flags >= 0 and arguments[call.flags] & _WRITE_FLAGS
    want = "write" if writes else call.want
    if (path, want) not in told and len(told) <= MOST and not _can_have(path, want):
        told.add((path, want))
        _tell({"path": path, "want": want} if len(told) <= MOST else {"more": True})


def _text_at(pid: int, address: int) -> bytes:
    """A path in another's memory. It may end with its page, and the next one need not exist."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while len(found) < _PATH_BYTES and b"\0" not in found:
            here = address + len(found)
            try:
                found += os.pread(memory, 4096 - here % 4096, here)
            except (OSError, OverflowError):
                return b""  # a wild pointer: the kernel will say so
        return found.partition(b"\0")[0]
    finally:
        os.close(memory)


def _can_have(path: str, want: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        if want != "write" or error.errno != errno.ENOENT:
            return False
        return os.access(os.path.dirname(path), os.W_OK)  # it would be made there
    return os.access(path, os.W_OK) if want == "write" else True


def _tell(record: dict[str, object]) -> None:
    line = MARK + json.dumps(record).encode()
    if len(line) <= _LINE_BYTES:  # a longer one could be torn apart by what the program writes
        os.write(2, line + b"\n")


def _give_up(why: str) -> NoReturn:
    _tell({"problem": why})
    os._exit(CANNOT)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])
