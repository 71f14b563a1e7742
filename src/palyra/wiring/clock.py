"""Touches: the clock and the kernel's randomness. ULIDs are made here, ordered within a process."""

from __future__ import annotations

import os
import time
from itertools import pairwise

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LETTERS = bytes(_ALPHABET.encode()[byte & 31] for byte in range(256))
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)


class SystemClock:
    def now_unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


class SystemIds:
    """ULIDs that never repeat or go back within a process, also when the clock does."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._last = ""

    def ulid(self) -> str:
        moment, last = encode_time(self._clock.now_unix_ms()), self._last
        if moment > last[:10]:
            # 80 random bits are 16 letters of 5: each byte gives one, so there is no number to be taken apart.
            self._last = last = moment + os.urandom(16).translate(_LETTERS).decode("ascii")
        else:
            self._last = last = next_ulid(last)
        return last

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


def encode_time(unix_ms: int) -> str:
    """The first ten letters, two a step; letters sort as their numbers do."""
    pairs = _PAIRS
    return (
        pairs[unix_ms >> 40 & 1023]
        + pairs[unix_ms >> 30 & 1023]
        + pairs[unix_ms >> 20 & 1023]
        + pairs[unix_ms >> 10 & 1023]
        + pairs[unix_ms & 1023]
    )


def next_ulid(ulid: str) -> str:
    """The one right after: for two ids of one moment, and for a clock that went back."""
    last = _FOLLOWS.get(ulid[-1])
    if last is not None:
        return ulid[:-1] + last
    number = int(ulid.translate(_AS_DIGITS), 32) + 1
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)])


_FOLLOWS = dict(pairwise(_ALPHABET))
_AS_DIGITS = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
"""Ours are Crockford's letters, Python's those of the alphabet."""
