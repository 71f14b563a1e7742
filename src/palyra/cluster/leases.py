"""Which daemons live, told by themselves: a process of another machine cannot be looked up in /proc.

A daemon that has not said so for `LEASE_MS` may be buried: whoever wants to close its open calls first removes its row,
if it is still that old. So either its next word comes first and it lives, or the burial does and it learns of it from
its own next word: what it has under way on nodes is then no longer its to bring home, and its closing is refused by the
call's row. Every time is the server's: daemons' clocks may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from palyra.model.record import Owner
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

LEASE_MS = 30_000
RENEW_S = 5.0
SURE_MS = LEASE_MS - 5_000
"""Within so long of its last word a daemon knows that nobody has buried it."""
_ONE = "boot_id = ? AND pid = ? AND start_ticks = ?"
_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_AGAIN = f"UPDATE daemons SET seen_unix_ms = {_NOW} WHERE {_ONE}"  # noqa: S608  # texts of our own, here and below
_SAY = f"INSERT INTO daemons VALUES (?, ?, ?, {_NOW})"  # noqa: S608
AGE = f"abs(CAST({_NOW} AS numeric) - seen_unix_ms)"
"""Also of a word from the future, which no daemon says: one row with such a time kept a dead one alive for ever."""
_FORGET = f"DELETE FROM daemons WHERE {AGE} > ?"  # noqa: S608
_AGE = f"SELECT {AGE} FROM daemons WHERE {_ONE}"  # noqa: S608
_BURY = f"DELETE FROM daemons WHERE {_ONE} AND {AGE} >= ?"  # noqa: S608
_LIVING = f"SELECT boot_id, pid, start_ticks FROM daemons WHERE {AGE} < ? ORDER BY boot_id, pid"  # noqa: S608


class Here(Protocol):
    """Processes of this machine (wiring/owners fits)."""

    def me(self) -> Owner: ...
    def is_alive(self, owner: Owner) -> bool: ...


class Leases:
    """The engine's `Owners`, for a cluster."""

    def __init__(self, writer: Writer, here: Here, now_unix_ms: Callable[[], int]) -> None:
        """`now_unix_ms` is this machine's, for what it cannot see otherwise: that it stood still as a whole."""
        self._writer, self._here, self._now = writer, here, now_unix_ms
        self._said: tuple[int, int] | None = None
        self._burials = 0

    def me(self) -> Owner:
        return self._here.me()

    def is_alive(self, owner: Owner) -> bool:
        if owner.boot_id == self.me().boot_id:
            return self._here.is_alive(owner)
        rows = self._writer.rows(_AGE, _row(owner))
        return bool(rows) and rows[0][0] < LEASE_MS

    def is_gone(self, owner: Owner) -> bool:
        """Blocks as a commit does, where one of another machine is to be buried."""
        if owner.boot_id == self.me().boot_id:
            return not self._here.is_alive(owner)
        return not self.is_alive(owner) and self._bury(owner)

    def living(self) -> list[Owner]:
        return [Owner(*row) for row in self._writer.rows(_LIVING, (LEASE_MS,))]

    def renew(self) -> None:
        """Blocks as a commit does."""
        me, began = _row(self.me()), self._moment()

        def work(tx: Transaction) -> bool:
            is_known = tx.execute(_AGAIN, me).rowcount == 1
            if not is_known:
                tx.execute(_SAY, me)
            tx.execute(_FORGET, (100 * LEASE_MS,))
            return is_known

        is_known, _ = self._writer.commit_now(work)
        if self._said is not None and not is_known:
            self._burials += 1
        self._said = began

    def burials(self) -> int:
        """How often this daemon was taken for dead. Asks the server, as `renew` does, when it was silent for so long
        that it cannot know by itself; `StateError` while that is away."""
        if not self._is_sure():
            self.renew()
        return self._burials

    def _is_sure(self) -> bool:
        if self._said is None:
            return False
        return max(now - then for now, then in zip(self._moment(), self._said, strict=True)) <= SURE_MS

    def _bury(self, owner: Owner) -> bool:
        def work(tx: Transaction) -> bool:
            tx.execute(_BURY, (*_row(owner), LEASE_MS))
            return not tx.rows(_AGE, _row(owner))

        is_buried, _ = self._writer.commit_now(work)
        return is_buried

    def _moment(self) -> tuple[int, int]:
        """By the clock on the wall too: the other one stands still while a machine is suspended."""
        return time.monotonic_ns() // 1_000_000, self._now()


def _row(owner: Owner) -> tuple[str, int, int]:
    return owner.boot_id, owner.pid, owner.start_ticks
