"""What is kept of a call's connections: each of the first ones, then sums, then one line for all the rest.

A program can open connections and ask for names until its time is up, and every one of them is a record that somebody
must store, sign and read. So the list is bounded however many there were, and nothing is left out of the sums.

Not here: what came of a connection (egress/conversation), the summary in the journal (engine/record).
"""

from __future__ import annotations

from palyra.egress.events import Ruled, Ruling
from palyra.model.outcome import Connection

EACH = 128
"""Records of their own."""
SUMMED = 128
"""Further ones, by host, port and verdict."""
VERDICTS = {Ruling.GRANTED: "allowed", Ruling.REFUSED: "denied", Ruling.FAILED: "failed"}
REST = "*"
"""The host of the line that stands for all others of its verdict."""


class Records:
    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._what: list[tuple[str, int, str]] = []
        self._why: list[tuple[str, tuple[str, ...]]] = []
        self._sums: dict[tuple[str, int, str], int] = {}

    def open(self, ruled: Ruled) -> int:
        """The place to count its bytes at."""
        key = (ruled.host, ruled.port, VERDICTS[ruled.ruling])
        if len(self._rows) < EACH:
            return self._add(key, ruled.why, ruled.grants)
        if key not in self._sums and len(self._sums) >= SUMMED:
            key = (REST, 0, key[2])
        if key not in self._sums:
            self._sums[key] = self._add(key, "", ())
        return self._sums[key]

    def _add(self, key: tuple[str, int, str], why: str, grants: tuple[str, ...]) -> int:
        self._what.append(key)
        self._why.append((why, grants))
        self._rows.append([0, 0])
        return len(self._rows) - 1

    def count(self, place: int, *, up: int, down: int) -> None:
        row = self._rows[place]
        row[0] += up
        row[1] += down

    def connections(self) -> tuple[Connection, ...]:
        return tuple(
            Connection(host=host, port=port, verdict=verdict, bytes_up=up, bytes_down=down, why=why, grants=grants)
            for (host, port, verdict), (up, down), (why, grants) in zip(self._what, self._rows, self._why, strict=True)
        )
