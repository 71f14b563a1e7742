"""x86-64's instructions for what a start program does.

A call's arguments are in rdi, rsi, rdx, r10, r8, its number and result in rax. Remembered: rbx what is kept, r12 how
much of the message has come, r13 the limit that is looked at, r14 how many are left. Not here: their order (starter).
"""

from __future__ import annotations

import struct

from palyra.sandbox.machine_code import (
    LIMIT_COUNT_AT,
    LIMIT_WORDS,
    LIMITS_AT,
    MESSAGE_AT,
    MESSAGE_BYTES,
    STATUS_AT,
    Argument,
    Code,
    InMessage,
    Known,
    OfLimit,
    Text,
)

_NUMBERS = {
    "read": 0, "write": 1, "open": 2, "close": 3, "getpid": 39, "clone": 56, "execve": 59, "wait4": 61, "kill": 62,
    "chdir": 80, "prctl": 157, "mount": 165, "exit_group": 231, "prlimit64": 302, "setns": 308, "close_range": 436,
    "mount_setattr": 442, "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip
_AT_ONCE = (b"\xbf", b"\xbe", b"\xba", b"\x41\xba", b"\x41\xb8")
"""mov to edi, esi, edx, r10d, r8d, of a number that follows."""
_FROM_ADDRESS = (b"\x48\x8b\x3c\x25", b"\x48\x8b\x34\x25", b"\x48\x8b\x14\x25")
_FROM_R13 = (b"\x49\x8b\x7d", b"\x49\x8b\x75", b"\x49\x8b\x55")
_R13_ITSELF = (b"\x49\x8d\x7d", b"\x49\x8d\x75", b"\x49\x8d\x55")
_KNOWN = {
    Known.RESULT: b"\x89\xc7",  # mov edi, eax
    Known.KEPT: b"\x89\xdf",  # mov edi, ebx
    Known.REST: b"\x49\x8d\xb4\x24" + struct.pack("<I", MESSAGE_AT),  # lea rsi, [r12 + message]
    Known.ROOM: b"\xba" + struct.pack("<I", MESSAGE_BYTES) + b"\x44\x29\xe2",  # mov edx, size; sub edx, r12d
    Known.ENDED_BY: b"",  # in edi already
}
_JUMPS = {"always": b"\xe9", "zero": b"\x0f\x84", "not zero": b"\x0f\x85", "negative": b"\x0f\x88",
          "not positive": b"\x0f\x8e", "below": b"\x0f\x82"}  # fmt: skip


class X86Code(Code):
    elf_machine = 62
    page_bytes = 4096

    def call(self, name: str, *arguments: Argument) -> None:
        for place, argument in enumerate(arguments):
            match argument:
                case Known():
                    self._bytes += _KNOWN[argument]
                case int():
                    self._bytes += _AT_ONCE[place] + struct.pack("<I", argument)
                case InMessage():
                    self._bytes += _FROM_ADDRESS[place] + struct.pack("<I", MESSAGE_AT + 8 * argument.word)
                case OfLimit():
                    self._bytes += (_R13_ITSELF if argument.address else _FROM_R13)[place]
                    self._bytes.append(8 * argument.word)
                case Text():
                    self._bytes += _AT_ONCE[place] + bytes(4)
                    self._texts.append((len(self._bytes), argument.text))
        number = struct.pack("<I", _NUMBERS[name])
        self._bytes += b"\xb8" + number + b"\x0f\x05\x48\x85\xc0"  # mov eax; syscall; test rax, rax

    def jump(self, when: str, to: str) -> None:
        self._bytes += _JUMPS[when] + bytes(4)
        self._jumps.append((len(self._bytes), to))

    def keep(self) -> None:
        self._bytes += b"\x89\xc3"  # mov ebx, eax

    def keep_error(self) -> None:
        self._bytes += b"\xf7\xd8\x89\xc3"  # neg eax; mov ebx, eax

    def is_kept(self) -> None:
        self._bytes += b"\x39\xd8"  # cmp eax, ebx

    def is_one(self) -> None:
        self._bytes += b"\x83\xf8\x01"  # cmp eax, 1

    def count_from_zero(self) -> None:
        self._bytes += b"\x4d\x31\xe4"  # xor r12, r12

    def count_result(self) -> None:
        self._bytes += b"\x49\x01\xc4\x49\x83\xfc\x08"  # add r12, rax; cmp r12, 8

    def has_all(self) -> None:
        self._bytes += b"\x4c\x3b\x24\x25" + struct.pack("<I", MESSAGE_AT)  # cmp r12, [message]

    def to_first_limit(self) -> None:
        self._bytes += b"\x41\xbd" + struct.pack("<I", LIMITS_AT)  # mov r13d, the first limit
        self._bytes += b"\x4c\x8b\x34\x25" + struct.pack("<I", LIMIT_COUNT_AT)  # mov r14, [how many]

    def has_limit(self) -> None:
        self._bytes += b"\x4d\x85\xf6"  # test r14, r14

    def to_next_limit(self) -> None:
        self._bytes += b"\x49\x83\xc5" + bytes([8 * LIMIT_WORDS]) + b"\x49\xff\xce"  # add r13, size; dec r14

    def ask_signal(self) -> None:
        self._bytes += b"\x8b\x04\x25" + struct.pack("<I", STATUS_AT)  # mov eax, [status]
        self._bytes += b"\x89\xc7\x83\xe7\x7f"  # mov edi, eax; and edi, 0x7f

    def take_exit_code(self) -> None:
        self._bytes += b"\x0f\xb6\xfc"  # movzx edi, ah

    def take_signal_code(self) -> None:
        self._bytes += b"\x81\xc7\x80\x00\x00\x00"  # add edi, 128

    def _link_jump(self, made: bytearray, place: int, distance: int) -> None:
        made[place - 4 : place] = struct.pack("<i", distance)

    def _link_text(self, made: bytearray, place: int, address: int) -> None:
        made[place - 4 : place] = struct.pack("<I", address)
