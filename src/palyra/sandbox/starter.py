"""The start program: what waits inside a finished sandbox until it is told what to become. Assembled by hand.

A few hundred bytes of machine code without a library, so that it costs next to nothing to start, to keep and to
replace: a shell in its place takes as long to start and to be replaced as many a program runs. What it does, in order:
1 close every descriptor it was not given (whatever leaked into it is gone here), 2 let the kernel end it first when
memory runs out, 3 as the `first` process of a sandbox: make the process that goes on, say that it waits, close all but
the socket it said that on, collect whatever ends, kill and collect what the program leaves behind, say how it ended,
and end as it did, 4 read one message, 5 lower the limits it names, 6 change folder, 7 become the program. If 5, 6 or 7
fails it writes the message's nonce to stderr and ends with the error's number.

It makes no choice of its own and reads nothing but the message, whose other end is the engine's alone. The two
processes of a `first` share their memory until the program begins, so that becoming it leaves nothing to take apart;
neither uses a stack. From then on that memory, which holds the nonce and the first process's code, is closed to the
program (not dumpable), though both have one uid.

Not here: its instructions (machine_x86_64, machine_aarch64), the message (start_message), machines without one (they
hold a shell), where it is put (bwrap, launch).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from palyra.canon import sha256_hex
from palyra.model.plan import Hole, Word
from palyra.sandbox.machine_code import STATUS_AT, Code, InMessage, Known, OfLimit, Text

MACHINES = frozenset({"x86_64", "aarch64"})
START_FILE = "/etc/.palyra-start"
"""Where it is inside a sandbox with a root of its own."""
START_DATA = Hole(0, path=True)
"""In a launcher: the same where the host's own root is seen, from a file without a name."""
READY, CONTROL = 8, 9
"""Descriptors: where it says that it waits (a socket, which no other process inside can open), where its message comes
from."""
MOUNTS, OWNER = 3, 4
"""Descriptors of `assemble_parting`: a mount namespace, and the user namespace it belongs to."""
NOT_TOLD = 125
"""How it ends where no message comes."""

_CLONE_VM_SIGCHLD = 0x100 | 17
_EVERYBODY = 0xFFFF_FFFF
"""-1, as the 32 bits the kernel reads: every child, or every process of the namespace but the first."""
_SIGKILL = 9
_WRITE_ONLY = 1
_SET_DUMPABLE = 4
_ABSTRACT_SOCKETS = 1
_NEW_USER, _NEW_MOUNTS, _ALL_PRIVATE = 0x1000_0000, 0x2_0000, 0x4000 | 0x4_0000
_READ_ONLY = struct.pack("<QQQQ", 1, 0, 0, 0)
"""`struct mount_attr`: one flag more, and all others as they are. Those that the host has set on its /dev (noexec, on
many) cannot be taken away in a sandbox: a mount that is changed with all its flags said anew would be refused."""
_READ_ONLY_ANEW, _OF_PROC = 0x20 | 0x1000 | 1 | 2, 4 | 8
"""For kernels before 5.12, which know nothing else: without set-user-id, and of /proc that there are no devices and no
programs."""


def is_started_by_it(launcher: Sequence[Word]) -> bool:
    """Whether a launcher ends in the start program; otherwise a shell is to be put behind it."""
    return bool(launcher) and launcher[-1] in (START_FILE, START_DATA)


def _code_for(machine: str) -> Code:
    """KeyError for a machine that is none of `MACHINES`."""
    if machine == "x86_64":
        from palyra.sandbox.machine_x86_64 import X86Code

        return X86Code()
    if machine == "aarch64":
        from palyra.sandbox.machine_aarch64 import ArmCode

        return ArmCode()
    raise KeyError(machine)


@lru_cache(maxsize=4)
def assemble(machine: str, *, first: bool, scoped: bool = False) -> bytes:
    """The file for one machine of `MACHINES`; raises KeyError for any other. `first`: it is a sandbox's pid 1.
    `scoped`: its network is the host's, so it enters a domain from which no socket without a path is reached that was
    made outside (Landlock version 6)."""
    code = _code_for(machine)
    _settle(code)
    if scoped:
        _enter_domain(code)
    if first:
        code.call("clone", _CLONE_VM_SIGCHLD, 0, 0, 0)
        code.jump("negative", "quit")
        code.jump("zero", "wait")
        _collect(code)
    else:
        code.call("write", READY, Text(b"r"), 1)
    _become(code, first=first)
    return code.file()


@lru_cache(maxsize=16)
def assemble_writer(machine: str, path: str, text: bytes) -> bytes:
    """A program that writes one text to one file of the kernel's, and ends with 0 if it did: for what only a process
    inside a namespace can set, where an interpreter would take longer to start than the whole sandbox."""
    code = _code_for(machine)
    code.call("open", Text(path.encode() + b"\0"), _WRITE_ONLY, 0)
    code.jump("negative", "quit")
    code.call("write", Known.RESULT, Text(text), len(text))
    code.jump("negative", "quit")
    code.call("exit_group", 0)
    code.label("quit")
    code.call("exit_group", NOT_TOLD)
    return code.file()


@lru_cache(maxsize=2)
def assemble_parting(machine: str, sealed: tuple[str, ...] = ()) -> bytes:
    """A program that parts the mounts of a sandbox from the host's, and ends with 0 if it did: what is mounted there
    from then on does not appear inside, where nothing would make it read-only. Root enters as root; anyone else through
    the user namespace that owns the mounts. `sealed`: mounts that it makes read-only."""
    code = _code_for(machine)
    code.call("setns", MOUNTS, _NEW_MOUNTS)
    code.jump("zero", "entered")
    code.call("setns", OWNER, _NEW_USER)
    code.jump("not zero", "quit")
    code.call("setns", MOUNTS, _NEW_MOUNTS)
    code.jump("not zero", "quit")
    code.label("entered")
    code.call("mount", Text(b"none\0"), Text(b"/\0"), 0, _ALL_PRIVATE)
    code.jump("not zero", "quit")
    for path in sealed:
        _seal(code, path)
    code.call("exit_group", 0)
    code.label("quit")
    code.call("exit_group", NOT_TOLD)
    return code.file()


def start_digest(machine: str) -> str:
    """Of all its forms; empty for a machine that has none."""
    if machine not in MACHINES:
        return ""
    forms = (assemble(machine, first=True), assemble(machine, first=True, scoped=True), assemble(machine, first=False))
    return sha256_hex(b"".join(forms))


def _seal(code: Code, path: str) -> None:
    where = Text(path.encode() + b"\0")
    code.call("mount_setattr", 0, where, 0, Text(_READ_ONLY), len(_READ_ONLY))
    code.jump("zero", path)
    anew = _READ_ONLY_ANEW if path.startswith("/dev/") else _READ_ONLY_ANEW | _OF_PROC
    code.call("mount", Text(b"none\0"), where, 0, anew, 0)
    code.jump("not zero", "quit")
    code.label(path)


def _settle(code: Code) -> None:
    """1, 2."""
    code.call("close_range", CONTROL + 1, 0xFFFF_FFFF, 0)
    code.jump("not zero", "quit")
    code.call("close_range", 3, READY - 1, 0)
    code.jump("not zero", "quit")
    code.call("open", Text(b"/proc/self/oom_score_adj\0"), _WRITE_ONLY, 0)
    code.jump("negative", "settled")  # where there is no such file, or a confined child may not open it
    code.keep()
    code.call("write", Known.KEPT, Text(b"500"), 3)
    code.call("close", Known.KEPT)
    code.label("settled")


def _enter_domain(code: Code) -> None:
    nothing_but_the_scope = struct.pack("<QQQ", 0, 0, _ABSTRACT_SOCKETS)
    code.call("landlock_create_ruleset", Text(nothing_but_the_scope), len(nothing_but_the_scope), 0)
    code.jump("negative", "quit")
    code.keep()
    code.call("landlock_restrict_self", Known.KEPT, 0)
    code.jump("not zero", "quit")
    code.call("close", Known.KEPT)


def _collect(code: Code) -> None:
    """3, in the first process."""
    code.keep()  # whom it made
    code.call("write", READY, Text(b"r"), 1)
    code.jump("negative", "quit")  # nobody listens: the engine is gone, and with it whoever would end the program
    code.call("close_range", 0, READY - 1, 0)
    code.call("close", CONTROL)
    code.label("collect")
    code.call("wait4", _EVERYBODY, STATUS_AT, 0, 0)
    code.jump("negative", "quit")
    code.is_kept()
    code.jump("not zero", "collect")
    _collect_rest(code)
    code.call("write", READY, STATUS_AT, 4)  # a signal cannot be told from a large exit code
    code.ask_signal()
    code.jump("not zero", "by a signal")
    code.take_exit_code()
    code.call("exit_group", Known.ENDED_BY)
    code.label("by a signal")
    code.take_signal_code()
    code.call("exit_group", Known.ENDED_BY)


def _collect_rest(code: Code) -> None:
    """What the program leaves running would die with this process, and its processor time with it: the kernel adds that
    only to who waits. Killed in one step, in which nobody can start anybody. Only as a namespace's first process:
    anywhere else the same call is for everybody on the machine."""
    code.call("getpid")
    code.is_one()
    code.jump("not zero", "collected")
    code.call("kill", _EVERYBODY, _SIGKILL)
    code.label("rest")
    code.call("wait4", _EVERYBODY, 0, 0, 0)
    code.jump("negative", "collected")
    code.jump("always", "rest")
    code.label("collected")


def _become(code: Code, *, first: bool) -> None:
    """4 to 7."""
    code.label("wait")
    code.call("close", READY)
    code.count_from_zero()
    code.label("read")
    code.call("read", CONTROL, Known.REST, Known.ROOM)
    code.jump("not positive", "quit")
    code.count_result()
    code.jump("below", "read")
    code.has_all()
    code.jump("below", "read")
    code.call("close", CONTROL)
    code.to_first_limit()
    code.label("limit")
    code.has_limit()
    code.jump("zero", "limited")
    code.call("prlimit64", OfLimit(0), OfLimit(1), OfLimit(2, address=True), 0)
    code.jump("not zero", "failed")
    code.to_next_limit()
    code.jump("always", "limit")
    code.label("limited")
    code.call("chdir", InMessage(4))
    code.jump("not zero", "failed")
    if first:  # the memory that stays behind holds the nonce: a program that reads it there could unsay that it ran
        code.call("prctl", _SET_DUMPABLE, 0, 0, 0)
        code.jump("not zero", "failed")
    code.call("execve", InMessage(1), InMessage(2), InMessage(3))
    code.label("failed")
    code.keep_error()
    code.call("write", 2, InMessage(5), InMessage(6))
    code.call("exit_group", Known.KEPT)
    code.label("quit")
    code.call("exit_group", NOT_TOLD)
