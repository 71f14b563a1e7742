"""64-bit ARM's instructions for what a start program does: four bytes each, numbers and registers within.

A call's arguments are in x0 to x4, its number in x8, its result in x0. Remembered: x19 what is kept, x20 how much
of the message has come, x21 the limit that is looked at, x22 how many are left; x9 and x10 are scratch. There is no
`open` here, only `openat`. Not here: the order of it all (starter).
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
    "mount": 40, "chdir": 49, "openat": 56, "close": 57, "read": 63, "write": 64, "exit_group": 94, "kill": 129,
    "prctl": 167, "getpid": 172, "clone": 220, "execve": 221, "wait4": 260, "prlimit64": 261, "setns": 268,
    "close_range": 436, "mount_setattr": 442, "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip
_HERE = 0xFFFF_FF9C
"""AT_FDCWD, as the 32 bits the kernel reads."""
_NUMBER, _SCRATCH, _ASKED, _KEPT, _COUNT, _LIMIT, _LEFT = 8, 9, 10, 19, 20, 21, 22
_CONDITIONS = {"zero": 0, "not zero": 1, "below": 3, "negative": 4, "not positive": 13}


class ArmCode(Code):
    elf_machine = 183
    page_bytes = 0x1_0000

    def call(self, name: str, *arguments: Argument) -> None:
        if name == "open":
            name, arguments = "openat", (_HERE, *arguments)
        for place, argument in enumerate(arguments):
            match argument:
                case Known():
                    self._known(place, argument)
                case int():
                    self._number(place, argument)
                case InMessage():
                    self._load(place, MESSAGE_AT + 8 * argument.word)
                case OfLimit(word=word, address=True):
                    self._do(0x9100_0000 | 8 * word << 10 | _LIMIT << 5 | place)  # add x, x21, 8 × word
                case OfLimit(word=word):
                    self._do(0xF940_0000 | word << 10 | _LIMIT << 5 | place)  # ldr x, [x21, 8 × word]
                case Text():
                    self._texts.append((len(self._bytes), argument.text))
                    self._do(0x1000_0000 | place)  # adr x, where it will be
        self._number(_NUMBER, _NUMBERS[name])
        self._do(0xD400_0001, 0xF100_001F)  # svc 0; cmp x0, 0

    def _known(self, place: int, known: Known) -> None:
        match known:
            case Known.RESULT | Known.ENDED_BY:  # in x0 already
                pass
            case Known.KEPT:
                self._do(0xAA00_03E0 | _KEPT << 16 | place)  # mov x, x19
            case Known.REST:
                self._number(place, MESSAGE_AT)
                self._do(0x8B00_0000 | _COUNT << 16 | place << 5 | place)  # add x, x, x20
            case Known.ROOM:
                self._number(place, MESSAGE_BYTES)
                self._do(0x4B00_0000 | _COUNT << 16 | place << 5 | place)  # sub w, w, w20

    def jump(self, when: str, to: str) -> None:
        self._jumps.append((len(self._bytes), to))
        self._do(0x1400_0000 if when == "always" else 0x5400_0000 | _CONDITIONS[when])  # b, b.…

    def keep(self) -> None:
        self._do(0xAA00_03E0 | _KEPT)  # mov x19, x0

    def keep_error(self) -> None:
        self._do(0x4B00_03E0 | _KEPT)  # neg w19, w0

    def is_kept(self) -> None:
        self._do(0x6B00_001F | _KEPT << 16)  # cmp w0, w19

    def is_one(self) -> None:
        self._do(0xF100_041F)  # cmp x0, 1

    def count_from_zero(self) -> None:
        self._number(_COUNT, 0)

    def count_result(self) -> None:
        self._do(0x8B00_0000 | _COUNT << 5 | _COUNT, 0xF100_201F | _COUNT << 5)  # add x20, x20, x0; cmp x20, 8

    def has_all(self) -> None:
        self._load(_SCRATCH, MESSAGE_AT)
        self._do(0xEB00_001F | _SCRATCH << 16 | _COUNT << 5)  # cmp x20, x9

    def to_first_limit(self) -> None:
        self._number(_LIMIT, LIMITS_AT)
        self._load(_LEFT, LIMIT_COUNT_AT)

    def has_limit(self) -> None:
        self._do(0xF100_001F | _LEFT << 5)  # cmp x22, 0

    def to_next_limit(self) -> None:
        self._do(0x9100_0000 | 8 * LIMIT_WORDS << 10 | _LIMIT << 5 | _LIMIT)  # add x21, x21, size
        self._do(0xD100_0400 | _LEFT << 5 | _LEFT)  # sub x22, x22, 1

    def ask_signal(self) -> None:
        self._number(_SCRATCH, STATUS_AT)
        self._do(0xB940_0000 | _SCRATCH << 5 | _ASKED)  # ldr w10, [x9]
        self._do(0x7200_1800 | _ASKED << 5)  # ands w0, w10, 0x7f

    def take_exit_code(self) -> None:
        self._do(0x5308_3C00 | _ASKED << 5)  # ubfx w0, w10, 8, 8

    def take_signal_code(self) -> None:
        self._do(0x1102_0000)  # add w0, w0, 128

    def _do(self, *instructions: int) -> None:
        self._bytes += struct.pack(f"<{len(instructions)}I", *instructions)

    def _number(self, register: int, number: int) -> None:
        """A whole one of 32 bits; the register's upper half becomes zero."""
        self._do(0x5280_0000 | (number & 0xFFFF) << 5 | register)  # movz w, its lower half
        if number >> 16:
            self._do(0x72A0_0000 | (number >> 16) << 5 | register)  # movk w, its upper half

    def _load(self, register: int, address: int) -> None:
        self._number(register, address)
        self._do(0xF940_0000 | register << 5 | register)  # ldr x, [x]

    def _link_jump(self, made: bytearray, place: int, distance: int) -> None:
        (instruction,) = struct.unpack_from("<I", made, place)
        words = distance // 4
        is_always = instruction >> 26 == 0x05
        struct.pack_into(
            "<I", made, place, instruction | (words & 0x3FF_FFFF if is_always else (words & 0x7_FFFF) << 5)
        )

    def _link_text(self, made: bytearray, place: int, address: int) -> None:
        (instruction,) = struct.unpack_from("<I", made, place)
        distance = address - self._address_of(place)
        struct.pack_into("<I", made, place, instruction | (distance & 3) << 29 | (distance >> 2 & 0x7_FFFF) << 5)
