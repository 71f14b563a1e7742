"""Touches: the clock and the kernel's randomness. ULIDs are made here, ordered within a process."""

from __future__ import annotations

import os
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80


class SystemClock:
    def now_unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


class SystemIds:
    """ULIDs that never repeat or go back within a process, also when the clock does."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._last = 0

    def ulid(self) -> str:
        fresh = (self._clock.now_unix_ms() << _RANDOM_BITS) | int.from_bytes(os.urandom(10), "big")
        self._last = max(fresh, self._last + 1)
        return encode_ulid(self._last)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_SHIFTS = tuple(range(120, -1, -10))


def encode_ulid(value: int) -> str:
    """Two letters a step: every call has two of them."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in _SHIFTS])
