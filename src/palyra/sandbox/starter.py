"""The start program: what waits inside a finished sandbox until it is told what to become. Assembled by hand.

A few hundred bytes of machine code without a library, so that it costs next to nothing to start, to keep and to
replace: a shell in its place takes as long to start and to be replaced as many a program runs. What it does, in order:
1 close every descriptor it was not given (whatever leaked into it is gone here), 2 let the kernel end it first when
memory runs out, 3 as the `first` process of a sandbox: make the process that goes on, say that it waits, close all but
the socket it said that on, collect whatever ends, say how the program ended, and end as it did, 4 read one message,
5 lower the limits it names, 6 change folder, 7 become the program. If 5, 6 or 7 fails it writes the message's nonce to
stderr and ends with the error's number.

It makes no choice of its own and reads nothing but the message, whose other end is the engine's alone. The two
processes of a `first` share their memory until the program begins, so that becoming it leaves nothing to take apart;
neither uses a stack. From then on that memory, which holds the nonce and the first process's code, is closed to the
program (not dumpable), though both have one uid.

Not here: the message (start_message), machines without one (they hold a shell), where it is put (bwrap, launch).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from palyra.canon import sha256_hex
from palyra.model.plan import Hole, Word
from palyra.values import dataclass

MACHINES = frozenset({"x86_64"})
START_FILE = "/etc/.palyra-start"
"""Where it is inside a sandbox with a root of its own."""
START_DATA = Hole(0, path=True)
"""In a launcher: the same where the host's own root is seen, from a file without a name."""
READY, CONTROL = 8, 9
"""Descriptors: where it says that it waits (a socket, which no other process inside can open), where its message comes
from."""
MOUNTS, OWNER = 3, 4
"""Descriptors of `assemble_parting`: a mount namespace, and the user namespace it belongs to."""
MESSAGE_AT = 0x1000_0000
"""The address its message is read to; pointers in a message are made for it."""
MESSAGE_BYTES = 8 << 20
HEAD_WORDS = 8
"""Of a message, 8 bytes each: its length, program, argv, envp, folder, nonce, length of the nonce, how many limits."""
LIMIT_WORDS = 4
"""Of each limit, after the head: whose, which, soft, hard."""
NOT_TOLD = 125
"""How it ends where no message comes."""

_CODE_AT = 0x40_0000
_STATUS_AT = MESSAGE_AT + MESSAGE_BYTES
_CLONE_VM_SIGCHLD = 0x100 | 17
_WRITE_ONLY = 1
_READ, _WRITE, _OPEN, _CLOSE, _CLONE, _EXECVE, _WAIT4, _CHDIR = 0, 1, 2, 3, 56, 59, 61, 80
_PRCTL, _EXIT_GROUP, _PRLIMIT64, _CLOSE_RANGE = 157, 231, 302, 436
_SET_DUMPABLE = 4
_CREATE_RULESET, _RESTRICT_SELF, _ABSTRACT_SOCKETS = 444, 446, 1
_MOUNT, _SETNS, _NEW_USER, _NEW_MOUNTS, _ALL_PRIVATE = 165, 308, 0x1000_0000, 0x2_0000, 0x4000 | 0x4_0000


@dataclass(frozen=True, slots=True)
class _InMessage:
    """The word of the message's head at this place."""

    word: int


@dataclass(frozen=True, slots=True)
class _OfLimit:
    """The word at this place of the limit that r13 points at; or where it is."""

    word: int
    address: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    """Where these bytes are."""

    text: bytes


_Argument: TypeAlias = "int | bytes | _InMessage | _OfLimit | _Text"
"""Bytes: instructions that fill the argument's own register."""
_AT_ONCE = (b"\xbf", b"\xbe", b"\xba", b"\x41\xba")
"""mov to edi, esi, edx, r10d: the registers of a call's arguments, of a number that follows."""
_FROM_ADDRESS = (b"\x48\x8b\x3c\x25", b"\x48\x8b\x34\x25", b"\x48\x8b\x14\x25")
_FROM_R13 = (b"\x49\x8b\x7d", b"\x49\x8b\x75", b"\x49\x8b\x55")
_R13_ITSELF = (b"\x49\x8d\x7d", b"\x49\x8d\x75", b"\x49\x8d\x55")
_EDI_IS_EAX, _EDI_IS_EBX = b"\x89\xc7", b"\x89\xdf"
_JUMPS = {"always": b"\xe9", "zero": b"\x0f\x84", "not zero": b"\x0f\x85", "negative": b"\x0f\x88",
          "not positive": b"\x0f\x8e", "below": b"\x0f\x82"}  # fmt: skip


def is_started_by_it(launcher: Sequence[Word]) -> bool:
    """Whether a launcher ends in the start program; otherwise a shell is to be put behind it."""
    return bool(launcher) and launcher[-1] in (START_FILE, START_DATA)


class _Code:
    """Instructions, labels and texts; linked when all are known."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []
        self._texts: list[tuple[int, bytes]] = []

    def raw(self, instructions: bytes) -> None:
        self._bytes += instructions

    def label(self, name: str) -> None:
        self._labels[name] = len(self._bytes)

    def jump(self, when: str, to: str) -> None:
        self._bytes += _JUMPS[when] + bytes(4)
        self._jumps.append((len(self._bytes), to))

    def call(self, number: int, *arguments: _Argument) -> None:
        """A system call; its result is in rax, and the flags say what kind of number that is."""
        for place, argument in enumerate(arguments):
            match argument:
                case bytes():
                    self._bytes += argument
                case int():
                    self._bytes += _AT_ONCE[place] + struct.pack("<I", argument)
                case _InMessage():
                    self._bytes += _FROM_ADDRESS[place] + struct.pack("<I", MESSAGE_AT + 8 * argument.word)
                case _OfLimit():
                    self._bytes += (_R13_ITSELF if argument.address else _FROM_R13)[place]
                    self._bytes.append(8 * argument.word)
                case _Text():
                    self._bytes += _AT_ONCE[place] + bytes(4)
                    self._texts.append((len(self._bytes), argument.text))
        self._bytes += b"\xb8" + struct.pack("<I", number) + b"\x0f\x05\x48\x85\xc0"  # mov eax; syscall; test rax, rax

    def linked(self, address: int) -> bytes:
        made, texts = bytearray(self._bytes), bytearray()
        for after, name in self._jumps:
            made[after - 4 : after] = struct.pack("<i", self._labels[name] - after)
        for after, text in self._texts:
            made[after - 4 : after] = struct.pack("<I", address + len(made) + len(texts))
            texts += text
        return bytes(made + texts)


@lru_cache(maxsize=4)
def assemble(machine: str, *, first: bool, scoped: bool = False) -> bytes:
    """The file for one machine of `MACHINES`; raises KeyError for any other. `first`: it is a sandbox's pid 1.
    `scoped`: its network is the host's, so it enters a domain from which no socket without a path is reached that was
    made outside (Landlock version 6)."""
    if machine not in MACHINES:
        raise KeyError(machine)
    code = _Code()
    _settle(code)
    if scoped:
        _enter_domain(code)
    if first:
        code.call(_CLONE, _CLONE_VM_SIGCHLD, 0, 0, 0)
        code.jump("negative", "quit")
        code.jump("zero", "wait")
        _collect(code)
    else:
        code.call(_WRITE, READY, _Text(b"r"), 1)
    _become(code, first=first)
    return _file(code)


@lru_cache(maxsize=16)
def assemble_writer(machine: str, path: str, text: bytes) -> bytes:
    """A program that writes one text to one file of the kernel's, and ends with 0 if it did: for what only a process
    inside a namespace can set, where an interpreter would take longer to start than the whole sandbox."""
    if machine not in MACHINES:
        raise KeyError(machine)
    code = _Code()
    code.call(_OPEN, _Text(path.encode() + b"\0"), _WRITE_ONLY, 0)
    code.jump("negative", "quit")
    code.call(_WRITE, _EDI_IS_EAX, _Text(text), len(text))
    code.jump("negative", "quit")
    code.call(_EXIT_GROUP, 0)
    code.label("quit")
    code.call(_EXIT_GROUP, NOT_TOLD)
    return _file(code)


@lru_cache(maxsize=1)
def assemble_parting(machine: str) -> bytes:
    """A program that parts the mounts of a sandbox from the host's, and ends with 0 if it did: what is mounted there
    from then on does not appear inside, where nothing would make it read-only. Root enters as root; anyone else through
    the user namespace that owns the mounts."""
    if machine not in MACHINES:
        raise KeyError(machine)
    code = _Code()
    code.call(_SETNS, MOUNTS, _NEW_MOUNTS)
    code.jump("zero", "entered")
    code.call(_SETNS, OWNER, _NEW_USER)
    code.jump("not zero", "quit")
    code.call(_SETNS, MOUNTS, _NEW_MOUNTS)
    code.jump("not zero", "quit")
    code.label("entered")
    code.call(_MOUNT, _Text(b"none\0"), _Text(b"/\0"), 0, _ALL_PRIVATE)
    code.jump("not zero", "quit")
    code.call(_EXIT_GROUP, 0)
    code.label("quit")
    code.call(_EXIT_GROUP, NOT_TOLD)
    return _file(code)


def start_digest(machine: str) -> str:
    """Of all its forms; empty for a machine that has none."""
    if machine not in MACHINES:
        return ""
    forms = (assemble(machine, first=True), assemble(machine, first=True, scoped=True), assemble(machine, first=False))
    return sha256_hex(b"".join(forms))


def _settle(code: _Code) -> None:
    """1, 2."""
    code.call(_CLOSE_RANGE, CONTROL + 1, 0xFFFF_FFFF, 0)
    code.jump("not zero", "quit")
    code.call(_CLOSE_RANGE, 3, READY - 1, 0)
    code.jump("not zero", "quit")
    code.call(_OPEN, _Text(b"/proc/self/oom_score_adj\0"), _WRITE_ONLY, 0)
    code.jump("negative", "settled")  # where there is no such file, or a confined child may not open it
    code.raw(b"\x89\xc3")  # mov ebx, eax
    code.call(_WRITE, _EDI_IS_EBX, _Text(b"500"), 3)
    code.call(_CLOSE, _EDI_IS_EBX)
    code.label("settled")


def _enter_domain(code: _Code) -> None:
    nothing_but_the_scope = struct.pack("<QQQ", 0, 0, _ABSTRACT_SOCKETS)
    code.call(_CREATE_RULESET, _Text(nothing_but_the_scope), len(nothing_but_the_scope), 0)
    code.jump("negative", "quit")
    code.raw(b"\x89\xc3")  # mov ebx, eax
    code.call(_RESTRICT_SELF, _EDI_IS_EBX, 0)
    code.jump("not zero", "quit")
    code.call(_CLOSE, _EDI_IS_EBX)


def _collect(code: _Code) -> None:
    """3, in the first process."""
    code.raw(b"\x89\xc3")  # mov ebx, eax: whom it made
    code.call(_WRITE, READY, _Text(b"r"), 1)
    code.jump("negative", "quit")  # nobody listens: the engine is gone, and with it whoever would end the program
    code.call(_CLOSE_RANGE, 0, READY - 1, 0)
    code.call(_CLOSE, CONTROL)
    code.label("collect")
    code.call(_WAIT4, 0xFFFF_FFFF, _STATUS_AT, 0, 0)
    code.jump("negative", "quit")
    code.raw(b"\x39\xd8")  # cmp eax, ebx
    code.jump("not zero", "collect")
    code.call(_WRITE, READY, _STATUS_AT, 4)  # a signal cannot be told from a large exit code
    code.raw(b"\x8b\x04\x25" + struct.pack("<I", _STATUS_AT))  # mov eax, [status]
    code.raw(b"\x89\xc7\x83\xe7\x7f")  # mov edi, eax; and edi, 0x7f: the signal that ended it
    code.jump("not zero", "by a signal")
    code.raw(b"\x0f\xb6\xfc")  # movzx edi, ah: its exit code
    code.call(_EXIT_GROUP)
    code.label("by a signal")
    code.raw(b"\x81\xc7\x80\x00\x00\x00")  # add edi, 128
    code.call(_EXIT_GROUP)


def _become(code: _Code, *, first: bool) -> None:
    """4 to 7."""
    code.label("wait")
    code.call(_CLOSE, READY)
    code.raw(b"\x4d\x31\xe4")  # xor r12, r12: how much of the message has come
    code.label("read")
    rest = b"\x49\x8d\xb4\x24" + struct.pack("<I", MESSAGE_AT)  # lea rsi, [r12 + message]
    room = b"\xba" + struct.pack("<I", MESSAGE_BYTES) + b"\x44\x29\xe2"  # mov edx, size; sub edx, r12d
    code.call(_READ, CONTROL, rest, room)
    code.jump("not positive", "quit")
    code.raw(b"\x49\x01\xc4\x49\x83\xfc\x08")  # add r12, rax; cmp r12, 8
    code.jump("below", "read")
    code.raw(b"\x4c\x3b\x24\x25" + struct.pack("<I", MESSAGE_AT))  # cmp r12, [message]
    code.jump("below", "read")
    code.call(_CLOSE, CONTROL)
    code.raw(b"\x41\xbd" + struct.pack("<I", MESSAGE_AT + 8 * HEAD_WORDS))  # mov r13d, the first limit
    code.raw(b"\x4c\x8b\x34\x25" + struct.pack("<I", MESSAGE_AT + 8 * 7))  # mov r14, how many
    code.label("limit")
    code.raw(b"\x4d\x85\xf6")  # test r14, r14
    code.jump("zero", "limited")
    code.call(_PRLIMIT64, _OfLimit(0), _OfLimit(1), _OfLimit(2, address=True), 0)
    code.jump("not zero", "failed")
    code.raw(b"\x49\x83\xc5" + bytes([8 * LIMIT_WORDS]) + b"\x49\xff\xce")  # add r13, size; dec r14
    code.jump("always", "limit")
    code.label("limited")
    code.call(_CHDIR, _InMessage(4))
    code.jump("not zero", "failed")
    if first:  # the memory that stays behind holds the nonce: a program that reads it there could unsay that it ran
        code.call(_PRCTL, _SET_DUMPABLE, 0, 0, 0)
        code.jump("not zero", "failed")
    code.call(_EXECVE, _InMessage(1), _InMessage(2), _InMessage(3))
    code.label("failed")
    code.raw(b"\xf7\xd8\x89\xc3")  # neg eax; mov ebx, eax
    code.call(_WRITE, 2, _InMessage(5), _InMessage(6))
    code.call(_EXIT_GROUP, _EDI_IS_EBX)
    code.label("quit")
    code.call(_EXIT_GROUP, NOT_TOLD)


def _file(code: _Code) -> bytes:
    """An ELF file: its code, which nobody may write; room for the message and a status; a stack nobody executes."""
    headers = 64 + 3 * 56
    text = code.linked(_CODE_AT + headers)
    size = headers + len(text)
    kind, machine, version = 2, 62, 1  # executable at fixed addresses, x86-64
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, version, _CODE_AT + headers, 64, 0, 0, 64, 56, 3, 0, 0, 0
    )
    load, stack, read, write, execute = 1, 0x6474E551, 4, 2, 1
    room = MESSAGE_BYTES + 4096
    segments = (
        (load, read | execute, 0, _CODE_AT, _CODE_AT, size, size, 4096),
        (load, read | write, 0, MESSAGE_AT, MESSAGE_AT, 0, room, 4096),
        (stack, read | write, 0, 0, 0, 0, 0, 16),
    )
    return head + b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments) + text
