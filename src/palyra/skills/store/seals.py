"""A row's seal: the installation's signature over all of it.

Whoever edits the index behind our back (a status, a digest, a revoked key that is to count again) cannot sign it, and
a row whose seal does not hold counts as absent: not runnable, not trusted. The key is the journal's of the row's entry,
so a handover leaves older seals sound. What holds was verified once a process; the same bytes need no second look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from palyra.errors import TrustError
from palyra.state.writer import Writer

MOST_REMEMBERED = 4096
Row = tuple[Any, ...]
T = TypeVar("T")


class SoundRows(Generic[T]):
    """What rows mean whose seal held, remembered by the row itself: judging one costs more than a whole call, and each
    call asks. A row that does not hold is never remembered."""

    def __init__(self, judge: Callable[[Row], T | None]) -> None:
        self._judge = judge
        self._known: dict[Row, T] = {}

    def among(self, rows: Sequence[Row]) -> tuple[T, ...]:
        return tuple(one for one in map(self.read, rows) if one is not None)

    def read(self, row: Row) -> T | None:
        found = self._known.get(row)
        if found is None and (found := self._judge(row)) is not None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[row] = found
        return found


class Seals:
    def __init__(self, writer: Writer, domain: str) -> None:
        self._writer = writer
        self._domain = f"palyra {domain}\n".encode()
        self._known: set[tuple[bytes, bytes]] = set()

    def sign(self, data: bytes) -> bytes:
        return self._writer.home.key.sign(self._domain + data)

    def holds(self, data: bytes, seal: bytes, *, entry: int) -> bool:
        if (data, seal) in self._known:
            return True
        keys = self._writer.home.keys
        # The change and its entry are one commit: in the commit after a handover the entry is the new key's.
        for verifier in {keys.of_entry(entry), keys.newest}:
            try:
                verifier.key.verify(seal, self._domain + data)
            except (TrustError, ValueError, TypeError):
                continue
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add((data, seal))
            return True
        return False
