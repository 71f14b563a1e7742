"""What programs of ours without a library are written in: system calls by name, jumps, the few things they remember.

A program remembers the result of its last call, one number it keeps, how much of its message has come, and which limit
it is at; `Code` names what can be done with those, and each machine has one that knows the instructions. No stack is
used. Every call, and every question (`is_…`, `has_…`), leaves an answer that the next jump goes by.

Not here: what a program does (starter), the instructions (machine_x86_64, machine_aarch64).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import ClassVar, TypeAlias

from palyra.values import dataclass

MESSAGE_AT = 0x1000_0000
"""The address a message is read to; pointers in a message are made for it."""
MESSAGE_BYTES = 8 << 20
HEAD_WORDS = 8
"""Of a message, 8 bytes each: its length, program, argv, envp, folder, nonce, length of the nonce, how many limits."""
LIMIT_WORDS = 4
"""Of each limit, after the head: whose, which, soft, hard."""
LIMITS_AT = MESSAGE_AT + 8 * HEAD_WORDS
LIMIT_COUNT_AT = MESSAGE_AT + 8 * 7
STATUS_AT = MESSAGE_AT + MESSAGE_BYTES

_CODE_AT = 0x40_0000
_HEADERS_BYTES = 64 + 3 * 56


@dataclass(frozen=True, slots=True)
class InMessage:
    """The word of the message's head at this place."""

    word: int


@dataclass(frozen=True, slots=True)
class OfLimit:
    """The word at this place of the limit that is looked at; or where it is."""

    word: int
    address: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Where these bytes are."""

    text: bytes


class Known(Enum):
    """What a program remembers, as an argument of its next call."""

    RESULT = auto()
    """Of the last call; the first argument alone."""
    KEPT = auto()
    """The first argument alone."""
    REST = auto()
    """Where the rest of the message goes; the second argument alone."""
    ROOM = auto()
    """And how long it may be; the third alone."""
    ENDED_BY = auto()
    """How the status says that a process ended, as it was last asked; the first alone."""


Argument: TypeAlias = "int | InMessage | OfLimit | Text | Known"


class Code(ABC):
    """Instructions, labels and texts of one program; linked when all are known."""

    elf_machine: ClassVar[int]
    page_bytes: ClassVar[int]
    """The largest that a kernel for this machine may have been built with."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []
        self._texts: list[tuple[int, bytes]] = []

    def label(self, name: str) -> None:
        self._labels[name] = len(self._bytes)

    @abstractmethod
    def call(self, name: str, *arguments: Argument) -> None:
        """A system call; whether its result is zero, negative … is what the next jump goes by."""

    @abstractmethod
    def jump(self, when: str, to: str) -> None:
        """`when`: always, zero, not zero, negative, not positive, below."""

    @abstractmethod
    def keep(self) -> None:
        """The last result."""

    @abstractmethod
    def keep_error(self) -> None:
        """The last result, which is an error's number below zero."""

    @abstractmethod
    def is_kept(self) -> None:
        """zero: the last result is what is kept."""

    @abstractmethod
    def is_one(self) -> None:
        """zero: the last result is 1."""

    @abstractmethod
    def count_from_zero(self) -> None:
        """Nothing of the message has come."""

    @abstractmethod
    def count_result(self) -> None:
        """So much more has come. below: not yet its first word."""

    @abstractmethod
    def has_all(self) -> None:
        """below: less than that word says has come."""

    @abstractmethod
    def to_first_limit(self) -> None: ...

    @abstractmethod
    def has_limit(self) -> None:
        """zero: none is left."""

    @abstractmethod
    def to_next_limit(self) -> None: ...

    @abstractmethod
    def ask_signal(self) -> None:
        """Of the status: by which signal it ended. zero: by none."""

    @abstractmethod
    def take_exit_code(self) -> None:
        """Of the status that was asked: its exit code."""

    @abstractmethod
    def take_signal_code(self) -> None:
        """Of the status that was asked: what a shell ends with after that signal."""

    @abstractmethod
    def _link_jump(self, made: bytearray, place: int, distance: int) -> None: ...

    @abstractmethod
    def _link_text(self, made: bytearray, place: int, address: int) -> None:
        """`address`: from the beginning of the file's memory; the program is at `_CODE_AT` there."""

    def file(self) -> bytes:
        """An ELF file: its code, which nobody may write; room for the message and a status; a stack nobody executes."""
        text = self._linked()
        size = _HEADERS_BYTES + len(text)
        kind, version = 2, 1  # executable at fixed addresses
        head = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF" + bytes([2, 1, 1]) + bytes(9), kind, self.elf_machine, version,
            _CODE_AT + _HEADERS_BYTES, 64, 0, 0, 64, 56, 3, 0, 0, 0,
        )  # fmt: skip
        load, stack, read, write, execute = 1, 0x6474E551, 4, 2, 1
        segments = (
            (load, read | execute, 0, _CODE_AT, _CODE_AT, size, size, self.page_bytes),
            (load, read | write, 0, MESSAGE_AT, MESSAGE_AT, 0, MESSAGE_BYTES + 4096, self.page_bytes),
            (stack, read | write, 0, 0, 0, 0, 0, 16),
        )
        return head + b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments) + text

    def _linked(self) -> bytes:
        made, texts = bytearray(self._bytes), bytearray()
        for place, name in self._jumps:
            self._link_jump(made, place, self._labels[name] - place)
        for place, text in self._texts:
            self._link_text(made, place, _CODE_AT + _HEADERS_BYTES + len(made) + len(texts))
            texts += text
        return bytes(made + texts)

    @staticmethod
    def _address_of(place: int) -> int:
        return _CODE_AT + _HEADERS_BYTES + place
