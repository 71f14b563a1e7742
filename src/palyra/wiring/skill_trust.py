"""What an operator does with publishers' keys: pin, list, revoke, take a rotation. Each is one transaction.

Revoking stops at once: every payload that the key signed is quarantined in the same commit.
"""

from __future__ import annotations

from dataclasses import replace

from palyra.canon import Json
from palyra.engine.ports import Clock
from palyra.journal.acts import PALYRA
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.lifecycle import Move, Status
from palyra.skills.manifest import check_publisher
from palyra.skills.store.life import SkillRows
from palyra.skills.store.pins import Pin, PinRows
from palyra.skills.trust import PinnedKey, check_not_revoked, parse_public_key, read_rotation
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer


class TrustDesk:
    def __init__(self, writer: Writer, clock: Clock, *, rows: SkillRows, pins: PinRows) -> None:
        self._writer = writer
        self._clock = clock
        self._rows = rows
        self._pins = pins

    def trust_list(self) -> list[dict[str, Json]]:
        return [pin.as_json() for pin in self._pins.all()]

    async def trust_add(
        self, publisher: str, key_text: str, *, by: str, valid_until_unix_ms: int | None = None
    ) -> dict[str, Json]:
        """Pin a key for a publisher; weak keys and keys that were revoked are refused."""
        name, key = check_publisher(publisher), parse_public_key(key_text)

        def work(tx: Transaction) -> Pin:
            now = self._clock.now_unix_ms()
            found = self._pins.find(name, key.key_id, tx)
            if found is not None:
                check_not_revoked(name, found.pinned)
                if found.pinned.valid_until_unix_ms == valid_until_unix_ms and not found.pinned.replaced_by:
                    return found
            pinned = PinnedKey(key=key, valid_until_unix_ms=valid_until_unix_ms)
            pin = Pin(publisher=name, pinned=pinned, how="operator", added_by=by)
            before = "trusted" if found is not None else None
            return self._pins.put(tx, pin, by=by, at_unix_ms=now, before=before, after="trusted")

        return self._writer.commit_now(work)[0].as_json()

    async def trust_revoke(self, publisher: str, *, by: str, key_id: str = "", reason: str = "") -> dict[str, Json]:
        """One key of a publisher, or all of them; what they signed is quarantined in the same commit."""

        def work(tx: Transaction) -> dict[str, Json]:
            now = self._clock.now_unix_ms()
            chosen = [p for p in self._pins.all(tx) if p.publisher == publisher and key_id in ("", p.pinned.key_id)]
            live = [pin for pin in chosen if pin.pinned.revoked_unix_ms is None]
            if not live:
                what = f"{publisher} {key_id}".strip()
                raise SkillRefused(
                    Finding.TRUST_UNKNOWN, f"No key of {what[:120]} is trusted here.", "palyra skills trust list"
                )
            for pin in live:
                gone = replace(pin, pinned=replace(pin.pinned, revoked_unix_ms=now))
                self._pins.put(tx, gone, by=by, at_unix_ms=now, before="trusted", after="revoked", reason=reason)
            return {
                "publisher": publisher,
                "revoked": [pin.pinned.key_id for pin in live],
                "quarantined": self._stop(tx, publisher, {pin.pinned.key_id for pin in live}, now),
            }

        return self._writer.commit_now(work)[0]

    def _stop(self, tx: Transaction, publisher: str, key_ids: set[str], now: int) -> list[str]:
        stopped = []
        sql = "SELECT sha256 FROM skills WHERE publisher = ? AND status NOT IN ('removed', 'quarantined')"
        for (sha256,) in tx.rows(sql, (publisher,)):
            standing = self._rows.find(sha256, tx)
            if standing is None or standing.key_id not in key_ids or standing.status is Status.REMOVED:
                continue
            reason = f"key {standing.key_id} of {publisher} was revoked"
            self._rows.move(tx, standing, Move.QUARANTINE, by=PALYRA, at_unix_ms=now, reason=reason)
            stopped.append(f"{standing.skill_id} {standing.version}")
        return sorted(stopped)

    async def trust_rotate(self, statement: bytes, *, by: str) -> dict[str, Json]:
        """Take a rotation that the old key signed: the new key counts, the old one signs nothing new."""

        def work(tx: Transaction) -> Pin:
            now = self._clock.now_unix_ms()
            publisher, old, new = read_rotation(statement, self._pins.trust(tx), at_unix_ms=now)
            if self._pins.find(publisher, new.key_id, tx) is not None:
                raise SkillRefused(Finding.TRUST_ROTATION, f"Key {new.key_id} of {publisher} is already known.")
            kept = self._pins.find(publisher, old.key_id, tx)
            assert kept is not None  # read_rotation found it
            retired = replace(kept, pinned=replace(old, replaced_by=new.key_id))
            how = {"by": by, "at_unix_ms": now, "before": "trusted", "reason": f"replaced by {new.key_id}"}
            self._pins.put(tx, retired, after="retired", **how)  # type: ignore[arg-type]
            # How long the publisher is trusted is the operator's word, not the publisher's: the new key inherits it.
            heir = PinnedKey(key=new, valid_until_unix_ms=old.valid_until_unix_ms)
            pin = Pin(publisher=publisher, pinned=heir, how="rotation", added_by=by)
            reason = f"rotation signed by {old.key_id}"
            return self._pins.put(tx, pin, by=by, at_unix_ms=now, before=None, after="trusted", reason=reason)

        return self._writer.commit_now(work)[0].as_json()
