"""Calls that were taken on and not waited for: durable before anybody is told so, gone when they have ended.

After a crash, one that has a row among the calls began, and is closed as interrupted like any other; one that has none
never began, so it is begun then: what was acknowledged is not lost, and nothing runs twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from palyra.state.writer import Writer
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenCall:
    call_id: str
    principal: str
    request: bytes
    """As the door needs it to make the call again."""
    taken_unix_ms: int


class TakenCalls:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, call: TakenCall) -> bool:
        """False for an id that is there already: that one stays as it was, and is not this caller's to forget."""
        values = (call.call_id, call.principal, call.request, call.taken_unix_ms)
        sql = "INSERT INTO taken_calls VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        rowcount, _ = await self._writer.commit(lambda tx: tx.execute(sql, values).rowcount)
        return rowcount == 1

    async def forget(self, call_id: str) -> None:
        await self._writer.commit_closing(
            lambda tx: tx.execute("DELETE FROM taken_calls WHERE call_id = ?", (call_id,))
        )

    async def left(self) -> Sequence[TakenCall]:
        """Those that never began, the oldest first; the others are forgotten here."""
        await self._writer.commit(
            lambda tx: tx.execute("DELETE FROM taken_calls WHERE call_id IN (SELECT call_id FROM calls)")
        )
        rows = self._writer.rows("SELECT * FROM taken_calls ORDER BY call_id")
        return [TakenCall(call_id=row[0], principal=row[1], request=row[2], taken_unix_ms=row[3]) for row in rows]
