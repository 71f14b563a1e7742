"""Which daemons live, told by themselves: a process of another machine cannot be looked up in /proc.

A daemon that has not said so for `LEASE_MS` counts as gone, and its open calls are closed as interrupted by the next
start of another. If it was only slow, its own closing comes second and is refused by the call's row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from palyra.model.record import Owner
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

LEASE_MS = 30_000
RENEW_S = 5.0
_SAY = """INSERT INTO daemons VALUES (?, ?, ?, ?)
          ON CONFLICT (boot_id, pid, start_ticks) DO UPDATE SET seen_unix_ms = excluded.seen_unix_ms"""
_SEEN = "SELECT seen_unix_ms FROM daemons WHERE boot_id = ? AND pid = ? AND start_ticks = ?"


class Here(Protocol):
    """Processes of this machine (wiring/owners fits)."""

    def me(self) -> Owner: ...
    def is_alive(self, owner: Owner) -> bool: ...


class Leases:
    """The engine's `Owners`, for a cluster."""

    def __init__(self, writer: Writer, here: Here, now_unix_ms: Callable[[], int]) -> None:
        self._writer, self._here, self._now = writer, here, now_unix_ms

    def me(self) -> Owner:
        return self._here.me()

    def is_alive(self, owner: Owner) -> bool:
        if owner.boot_id == self.me().boot_id:
            return self._here.is_alive(owner)
        rows = self._writer.rows(_SEEN, (owner.boot_id, owner.pid, owner.start_ticks))
        return bool(rows) and self._now() - rows[0][0] < LEASE_MS

    def living(self) -> list[Owner]:
        sql = "SELECT boot_id, pid, start_ticks FROM daemons WHERE seen_unix_ms > ? ORDER BY boot_id, pid"
        return [Owner(*row) for row in self._writer.rows(sql, (self._now() - LEASE_MS,))]

    def renew(self) -> None:
        """Blocks as a commit does."""
        me, now = self.me(), self._now()

        def work(tx: Transaction) -> None:
            tx.execute(_SAY, (me.boot_id, me.pid, me.start_ticks, now))
            tx.execute("DELETE FROM daemons WHERE seen_unix_ms < ?", (now - 100 * LEASE_MS,))

        self._writer.commit_now(work)
