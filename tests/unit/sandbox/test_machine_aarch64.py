"""ARM's instructions, followed one by one over a kernel that only answers: on any machine, the calls they make. `make
test-arm` runs the same program under a kernel of its own."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeAlias

from palyra.sandbox.machine_code import MESSAGE_AT, STATUS_AT
from palyra.sandbox.start_message import start_message
from palyra.sandbox.starter import CONTROL, MOUNTS, NOT_TOLD, OWNER, READY, assemble, assemble_parting, assemble_writer

CODE_AT, ENTRY = 0x40_0000, 0x40_0000 + 64 + 3 * 56
NAMES = {
    40: "mount", 49: "chdir", 56: "openat", 57: "close", 63: "read", 64: "write", 94: "exit_group", 129: "kill",
    167: "prctl", 172: "getpid", 220: "clone", 221: "execve", 260: "wait4", 261: "prlimit64", 268: "setns",
    436: "close_range", 444: "landlock_create_ruleset", 446: "landlock_restrict_self",
}  # fmt: skip
MOST_STEPS = 10_000
Said: TypeAlias = tuple[str, int, int, int, int]
Answer: TypeAlias = "Callable[[Arm, Said], int | None]"
"""None: the program is over."""


class Arm:
    """The few instructions that are used; any other is an error."""

    def __init__(self, file: bytes, answer: Answer) -> None:
        self.memory = {CODE_AT + at: byte for at, byte in enumerate(file)}
        self.registers = [0] * 32
        self.flags = (False, False, False)
        self.calls: list[Said] = []
        self._answer = answer
        self._at = ENTRY

    def run(self) -> list[Said]:
        for _ in range(MOST_STEPS):
            word = int.from_bytes(self.bytes_at(self._at, 4), "little")
            self._at += 4
            if word == 0xD400_0001:
                if not self._call():
                    return self.calls
            elif not (self._jumped(word) or self._loaded(word) or self._counted(word)):
                raise AssertionError(f"{word:08x} before {self._at:x} is no instruction this program should have")
        raise AssertionError("it goes on for ever")

    def bytes_at(self, address: int, count: int) -> bytes:
        return bytes(self.memory[address + at] for at in range(count))

    def put(self, address: int, data: bytes) -> None:
        self.memory |= {address + at: byte for at, byte in enumerate(data)}

    def _call(self) -> bool:
        first, second, third, fourth = self.registers[:4]
        said = (NAMES[self.registers[8]], first, second, third, fourth)
        self.calls.append(said)
        result = self._answer(self, said)
        if result is None:
            return False
        self.registers[0] = result & (1 << 64) - 1
        return True

    def _jumped(self, word: int) -> bool:
        if word >> 26 == 0x05:
            self._at += 4 * signed(word & 0x3FF_FFFF, 26) - 4
        elif word & 0xFF00_0010 == 0x5400_0000:
            zero, negative, below = self.flags
            taken = {0: zero, 1: not zero, 3: below, 4: negative, 13: zero or negative}[word & 15]
            self._at += 4 * signed(word >> 5 & 0x7_FFFF, 19) - 4 if taken else 0
        else:
            return False
        return True

    def _loaded(self, word: int) -> bool:
        to, of, registers = word & 31, word >> 5 & 31, self.registers
        if word & 0xFFE0_0000 == 0x5280_0000:  # movz
            registers[to] = word >> 5 & 0xFFFF
        elif word & 0xFFE0_0000 == 0x72A0_0000:  # movk, the upper half
            registers[to] = registers[to] & 0xFFFF | (word >> 5 & 0xFFFF) << 16
        elif word & 0x9F00_0000 == 0x1000_0000:  # adr
            registers[to] = self._at - 4 + signed((word >> 5 & 0x7_FFFF) << 2 | word >> 29 & 3, 21)
        elif word & 0xFFC0_0000 == 0xF940_0000:  # ldr x
            registers[to] = int.from_bytes(self.bytes_at(registers[of] + 8 * (word >> 10 & 0xFFF), 8), "little")
        elif word & 0xFFC0_0000 == 0xB940_0000:  # ldr w
            registers[to] = int.from_bytes(self.bytes_at(registers[of] + 4 * (word >> 10 & 0xFFF), 4), "little")
        elif word & 0xFFE0_FFE0 == 0xAA00_03E0:  # mov
            registers[to] = registers[word >> 16 & 31]
        else:
            return False
        return True

    def _counted(self, word: int) -> bool:
        to, of, by = word & 31, word >> 5 & 31, word >> 16 & 31
        a, b = 0 if of == 31 else self.registers[of], self.registers[by]
        number, low = word >> 10 & 0xFFF, (1 << 32) - 1
        made = {
            0x9100_0000: a + number,  # add x, x, number
            0xD100_0000: a - number,  # sub x, x, number
            0x1100_0000: a + number & low,  # add w, w, number
        }.get(word & 0xFFC0_0000)
        made = {0x8B00_0000: a + b, 0x4B00_0000: a - b & low}.get(word & 0xFFE0_FC00) if made is None else made
        if word & 0xFFFF_FC00 == 0x7200_1800:  # ands w, w, 0x7f
            made = a & 0x7F
            self.flags = (made == 0, False, False)
        if word & 0xFFFF_FC00 == 0x5308_3C00:  # ubfx w, w, 8, 8
            made = a >> 8 & 0xFF
        if made is not None:
            self.registers[to] = made & (1 << 64) - 1
            return True
        return self._compared(word, a, b, number)

    def _compared(self, word: int, a: int, b: int, number: int) -> bool:
        if word & 0xFFC0_001F == 0xF100_001F:
            bits, b = 64, number
        elif word & 0xFFE0_FC1F == 0xEB00_001F:
            bits = 64
        elif word & 0xFFE0_FC1F == 0x6B00_001F:
            bits, a, b = 32, a & (1 << 32) - 1, b & (1 << 32) - 1
        else:
            return False
        self.flags = (a == b, signed(a, bits) < signed(b, bits), a < b)
        return True


def signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> bits - 1 else number


def follow(file: bytes, answers: dict[str, Sequence[int | bytes | None]]) -> tuple[list[Said], Arm]:
    """Each call's answers in their order, the last one again and again; bytes are read, nothing said is zero."""
    left = {name: list(given) for name, given in answers.items()}

    def answer(arm: Arm, said: Said) -> int | None:
        given = left.get(said[0], [0])
        result = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(result, bytes):
            arm.put(said[2], result)
            return len(result)
        return result

    arm = Arm(file, answer)
    return arm.run(), arm


def message(*limits: tuple[int, int, int]) -> bytes:
    return start_message(
        program="/bin/x", arguments=("a",), env=(), cwd="/w", limits=limits, nonce=b"nonce", limit_first=True
    )


def text_at(arm: Arm, address: int) -> bytes:
    end = address
    while arm.memory[end]:
        end += 1
    return arm.bytes_at(address, end - address)


SETTLED = ["close_range", "close_range", "openat", "write", "close"]


def test_it_reads_its_message_lowers_limits_and_becomes_the_program() -> None:
    told = message((7, 20, 30))
    answers = {"openat": [3], "write": [3, 1], "read": [told[:5], told[5:100], told[100:]], "execve": [None]}
    calls, arm = follow(assemble("aarch64", first=False), answers)
    assert [name for name, *_ in calls] == [
        *SETTLED, "write", "close", "read", "read", "read", "close", "prlimit64", "prlimit64", "chdir", "execve",
    ]  # fmt: skip
    assert calls[0][1:4] == (CONTROL + 1, 0xFFFF_FFFF, 0)
    assert calls[1][1:4] == (3, READY - 1, 0)
    assert (calls[2][1], text_at(arm, calls[2][2]), calls[2][3]) == (0xFFFF_FF9C, b"/proc/self/oom_score_adj", 1)
    assert (calls[3][1], arm.bytes_at(calls[3][2], 3)) == (3, b"500")
    assert (calls[5][1], arm.bytes_at(calls[5][2], 1), calls[6][1]) == (READY, b"r", READY)
    assert [call[2] - MESSAGE_AT for call in calls[7:10]] == [0, 5, 100], "each goes where the last one ended"
    assert [(call[1], call[2], arm.bytes_at(call[3], 16), call[4]) for call in calls[11:13]] == [
        (pid, 7, struct.pack("<QQ", 20, 30), 0) for pid in (1, 0)
    ]
    assert text_at(arm, calls[13][1]) == b"/w"
    assert text_at(arm, calls[14][1]) == b"/bin/x"


def test_what_cannot_be_done_is_said_by_the_nonce_and_the_errors_number() -> None:
    answers = {"openat": [-2], "read": [message()], "chdir": [-13], "exit_group": [None]}
    calls, arm = follow(assemble("aarch64", first=False), answers)
    assert [name for name, *_ in calls] == [
        "close_range", "close_range", "openat", "write", "close", "read", "close", "chdir", "write", "exit_group",
    ]  # fmt: skip
    assert (calls[-2][1], arm.bytes_at(calls[-2][2], calls[-2][3])) == (2, b"nonce\n")
    assert calls[-1][1] == 13


def test_without_a_message_it_ends() -> None:
    calls, _ = follow(assemble("aarch64", first=False), {"openat": [3], "read": [0], "exit_group": [None]})
    assert calls[-1][:2] == ("exit_group", NOT_TOLD)


def collected(status: int, *, pid: int) -> list[Said]:
    """The calls of a first process that is `pid`: somebody ends, then the program so; two are left when it has."""
    ends = iter(((99, 0x0100), (42, status), (98, 9), (97, 9)))

    def answer(arm: Arm, said: Said) -> int | None:
        if said[0] == "wait4":
            child, found = next(ends, (-10, 0))
            if said[2]:
                arm.put(said[2], struct.pack("<I", found))
            return child
        return {"openat": 3, "clone": 42, "getpid": pid, "exit_group": None}.get(said[0], 0)

    return Arm(assemble("aarch64", first=True), answer).run()


def test_the_first_process_collects_everybody_and_ends_as_the_program_did() -> None:
    for status, code in ((0x0300, 3), (0, 0), (9, 137)):
        calls = collected(status, pid=1)
        assert [name for name, *_ in calls[5:]] == [
            "clone", "write", "close_range", "close", "wait4", "wait4", "getpid", "kill", "wait4", "wait4", "wait4",
            "write", "exit_group",
        ]  # fmt: skip
        assert calls[5][1:5] == (0x111, 0, 0, 0)
        assert calls[12][1:3] == (0xFFFF_FFFF, 9)
        assert {call[2] for call in calls[13:16]} == {0}, "how the others end is nobody's status"
        assert calls[-2][1:4] == (READY, STATUS_AT, 4)
        assert calls[-1][1] == code


def test_outside_of_a_namespace_of_its_own_nobody_is_killed() -> None:
    for pid in (0, 2, 257, 0x1_0000):
        calls = collected(0x0300, pid=pid)
        assert [name for name, *_ in calls[9:]] == ["wait4", "wait4", "getpid", "write", "exit_group"]
        assert calls[-1][1] == 3


def test_its_child_becomes_the_program_in_memory_that_is_closed_to_it() -> None:
    answers = {"openat": [3], "clone": [0], "read": [message()], "execve": [None]}
    calls, _ = follow(assemble("aarch64", first=True, scoped=True), answers)
    assert [name for name, *_ in calls[5:]] == [
        "landlock_create_ruleset", "landlock_restrict_self", "close", "clone", "close", "read", "close", "chdir",
        "prctl", "execve",
    ]  # fmt: skip
    assert calls[-2][1:3] == (4, 0)


def test_a_text_is_written_to_a_file_of_the_kernels() -> None:
    file = assemble_writer("aarch64", "/proc/sys/kernel/pid_max", b"512")
    calls, arm = follow(file, {"openat": [5], "write": [3], "exit_group": [None]})
    assert [name for name, *_ in calls] == ["openat", "write", "exit_group"]
    assert (text_at(arm, calls[0][2]), calls[0][3]) == (b"/proc/sys/kernel/pid_max", 1)
    assert (calls[1][1], arm.bytes_at(calls[1][2], calls[1][3]), calls[2][1]) == (5, b"512", 0)
    assert follow(file, {"openat": [-13], "exit_group": [None]})[0][-1][1] == NOT_TOLD


def test_mounts_are_parted_through_the_user_namespace_that_owns_them() -> None:
    calls, arm = follow(assemble_parting("aarch64"), {"setns": [-1, 0], "exit_group": [None]})
    assert [call[:3] for call in calls[:3]] == [
        ("setns", MOUNTS, 0x2_0000), ("setns", OWNER, 0x1000_0000), ("setns", MOUNTS, 0x2_0000),
    ]  # fmt: skip
    assert (text_at(arm, calls[3][2]), calls[3][3:5]) == (b"/", (0, 0x4_4000))
    assert calls[4][:2] == ("exit_group", 0)
