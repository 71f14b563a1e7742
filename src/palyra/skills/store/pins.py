"""Pinned keys as rows: who may sign for whom, since when, whether it was taken back. Changes commit with an entry."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palyra.canon import Json, canonical
from palyra.errors import TrustError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.signing import PublicKey
from palyra.skills.store.seals import Seals, SoundRows
from palyra.skills.trust import PinnedKey, Trust
from palyra.state.database import Rows
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

log = logging.getLogger("palyra.skills")

_COLUMNS = (
    "publisher, key_id, public_key, valid_from_unix_ms, valid_until_unix_ms, revoked_unix_ms, replaced_by, how, "
    "added_by, entry"
)
_SELECT = f"SELECT {_COLUMNS}, seal FROM skill_publishers"  # noqa: S608 - names of our own columns
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS.split(", ")[2:], "seal"))
_PUT = f"""INSERT INTO skill_publishers ({_COLUMNS}, seal) VALUES ({", ".join("?" * 11)})
    ON CONFLICT (publisher, key_id) DO UPDATE SET {_CHANGES}"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    publisher: str
    pinned: PinnedKey
    how: str
    """`operator`, `tofu` or `rotation`."""
    added_by: str
    entry: int = -1

    def as_row(self) -> tuple[object, ...]:
        key = self.pinned
        return (
            self.publisher,
            key.key_id,
            key.key.raw,
            key.valid_from_unix_ms,
            key.valid_until_unix_ms,
            key.revoked_unix_ms,
            key.replaced_by,
            self.how,
            self.added_by,
            self.entry,
        )

    def sealed_bytes(self) -> bytes:
        return canonical([value.hex() if isinstance(value, bytes) else value for value in self.as_row()])

    def as_json(self) -> dict[str, Json]:
        return {"publisher": self.publisher, **self.pinned.as_json(), "how": self.how, "added_by": self.added_by}


class PinRows:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seals = Seals(writer, "pinned key v1")
        self._sound = SoundRows(self._judged)

    def trust(self, source: Rows | None = None) -> Trust:
        found: dict[str, list[PinnedKey]] = {}
        for pin in self.all(source):
            found.setdefault(pin.publisher, []).append(pin.pinned)
        return Trust(publishers={name: tuple(keys) for name, keys in found.items()})

    def all(self, source: Rows | None = None) -> tuple[Pin, ...]:
        return self._sound.among((source or self._writer).rows(f"{_SELECT} ORDER BY publisher, key_id"))

    def find(self, publisher: str, key_id: str, source: Rows | None = None) -> Pin | None:
        rows = (source or self._writer).rows(f"{_SELECT} WHERE publisher = ? AND key_id = ?", (publisher, key_id))
        found = self._sound.among(rows)
        return found[0] if found else None

    def names(self, publisher: str, source: Rows) -> bool:
        """Whether any row names the publisher, sound or not: taking one on first use must not mend an edited row."""
        return bool(source.rows("SELECT 1 FROM skill_publishers WHERE publisher = ?", (publisher,)))

    def _judged(self, row: tuple[Any, ...]) -> Pin | None:
        try:
            pin = Pin(
                publisher=row[0],
                pinned=PinnedKey(
                    key=PublicKey(bytes(row[2])),
                    valid_from_unix_ms=row[3],
                    valid_until_unix_ms=row[4],
                    revoked_unix_ms=row[5],
                    replaced_by=row[6],
                ),
                how=row[7],
                added_by=row[8],
                entry=row[9],
            )
            if pin.pinned.key_id == row[1] and self._seals.holds(pin.sealed_bytes(), row[10], entry=pin.entry):
                return pin
        except (TrustError, ValueError, TypeError):
            pass
        log.warning("a pinned key of %.80s was changed", row[0])
        return None

    def put(
        self, tx: Transaction, pin: Pin, *, by: str, at_unix_ms: int, before: str | None, after: str, reason: str = ""
    ) -> Pin:
        """Write a pin with the entry that tells of it; `before` and `after` say what it is worth."""
        details: Mapping[str, Json] = {
            "key_id": pin.pinned.key_id,
            "before": before,
            "after": after,
            "reason": reason[:300],
        }
        act = Act(kind=ActKind.TRUST_CHANGED, actor=by, subject=f"publisher/{pin.publisher}", details=details)
        whole = replace(pin, entry=record_act(tx, act, at_unix_ms=at_unix_ms))
        tx.execute(_PUT, (*whole.as_row(), self._seals.sign(whole.sealed_bytes())))
        return whole
