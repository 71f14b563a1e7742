"""Skills' own key-value spaces, in the database: durable when `put` returns, apart from each other by skill.

Rules: every key belongs to one skill id; what a skill may keep in all is bounded in the transaction that adds it, so
that calls side by side cannot pass the bound together. Nothing here is in the journal: the call that wrote it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from palyra.errors import Reason, Rejected
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

QUOTA_BYTES = 16 << 20
"""Of one skill: keys and values together."""
MAX_KEYS = 10_000
_USED = (
    "SELECT count(*), coalesce(sum(length(key) + length(value)), 0) FROM guest_values WHERE skill_id = ? AND key != ?"
)
_PUT = """INSERT INTO guest_values VALUES (?, ?, ?)
          ON CONFLICT (skill_id, key) DO UPDATE SET value = excluded.value"""


class GuestStore:
    def __init__(self, writer: Writer, *, quota_bytes: int = QUOTA_BYTES) -> None:
        self._writer = writer
        self._quota_bytes = quota_bytes

    async def get(self, skill_id: str, key: str) -> bytes | None:
        rows = self._writer.rows("SELECT value FROM guest_values WHERE skill_id = ? AND key = ?", (skill_id, key))
        return bytes(rows[0][0]) if rows else None

    async def put(self, skill_id: str, key: str, value: bytes) -> None:
        def work(tx: Transaction) -> None:
            keys, used = tx.execute(_USED, (skill_id, key)).fetchone()
            if keys >= MAX_KEYS or used + len(key) + len(value) > self._quota_bytes:
                raise Rejected(
                    Reason.QUOTA_EXCEEDED,
                    f"{skill_id} keeps {used} bytes under {keys} keys; it may keep {self._quota_bytes} and {MAX_KEYS}.",
                    "The skill has to delete what it no longer needs.",
                )
            tx.execute(_PUT, (skill_id, key, value))

        await self._writer.commit(work)

    async def delete(self, skill_id: str, key: str) -> None:
        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM guest_values WHERE skill_id = ? AND key = ?", (skill_id, key))

        await self._writer.commit(work)

    async def list(self, skill_id: str, prefix: str) -> Sequence[str]:
        """In order. The end of the range is the prefix with its last character one higher."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        sql = "SELECT key FROM guest_values WHERE skill_id = ? AND key >= ? AND key < ? ORDER BY key"
        return [str(key) for (key,) in self._writer.rows(sql, (skill_id, prefix, after))]
