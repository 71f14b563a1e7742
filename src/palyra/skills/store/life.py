"""Standings and payloads of skills, as rows. A move and the entry that tells of it are one transaction.

What is read here was sealed: a row that somebody edited is not returned. Removal keeps rows, statements and reports.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palyra.canon import sha256_hex
from palyra.journal.acts import Act, ActKind, record_act
from palyra.skills.lifecycle import COLUMNS, Move, Standing, Status, move, parse_standing
from palyra.skills.store.seals import Seals, SoundRows
from palyra.skills.version import is_version
from palyra.state.database import Rows
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

log = logging.getLogger("palyra.skills")

_SELECT = f"SELECT {', '.join(COLUMNS)}, seal FROM skills"  # noqa: S608 - names of our own columns
_MARKS = ", ".join("?" * (len(COLUMNS) + 1))
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS[1:], "seal"))
_PUT = f"""INSERT INTO skills ({", ".join(COLUMNS)}, seal) VALUES ({_MARKS})
    ON CONFLICT (sha256) DO UPDATE SET {_CHANGES}"""  # noqa: S608
_WITH_TOOL = "(SELECT sha256 FROM skill_tools WHERE tool_id = ?)"
_KEEP = """INSERT INTO skill_payloads VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (sha256) DO UPDATE SET bundle = excluded.bundle, bundle_sha256 = excluded.bundle_sha256"""
MAX_REASON = 300
EDITED = "its row in the index was not what was recorded"


class SkillRows:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seals = Seals(writer, "skill standing v1")
        self._sound = SoundRows(self._judged)

    # ── reading ──

    def active(self, skill_id: str) -> Standing | None:
        return self._one(self._writer, f"{_SELECT} WHERE skill_id = ? AND status = 'active'", (skill_id,))

    def active_with_tool(self, tool_id: str) -> Standing | None:
        sql = f"{_SELECT} WHERE status = 'active' AND sha256 IN {_WITH_TOOL}"
        return self._one(self._writer, sql, (tool_id,))

    def with_tool(self, tool_id: str) -> tuple[Standing, ...]:
        """Installed, in whatever state."""
        sql = f"{_SELECT} WHERE status != 'removed' AND sha256 IN {_WITH_TOOL} ORDER BY changed_unix_ms DESC"
        return self._sound.among(self._writer.rows(sql, (tool_id,)))

    def edited_with_tool(self, tool_id: str) -> str:
        """The skill whose row, edited since, belongs to a payload with this tool; empty: none."""
        sql = f"{_SELECT} WHERE status != 'removed' AND sha256 IN {_WITH_TOOL}"
        rows = self._writer.rows(sql, (tool_id,))
        return next((str(row[1]) for row in rows if self._sound.read(row) is None), "")

    def all_active(self) -> tuple[Standing, ...]:
        return self._sound.among(self._writer.rows(f"{_SELECT} WHERE status = 'active' ORDER BY skill_id"))

    def status(self, sha256: str) -> str:
        """What is written, sealed or not: for who only has to notice that something is no longer active."""
        rows = self._writer.rows("SELECT status FROM skills WHERE sha256 = ?", (sha256,))
        return str(rows[0][0]) if rows else ""

    def of_skill(self, skill_id: str, source: Rows | None = None) -> tuple[Standing, ...]:
        return self._sound.among((source or self._writer).rows(f"{_SELECT} WHERE skill_id = ?", (skill_id,)))

    def all(self) -> tuple[Standing, ...]:
        return self._sound.among(self._writer.rows(f"{_SELECT} ORDER BY skill_id, installed_unix_ms, sha256"))

    def find(self, sha256: str, source: Rows | None = None) -> Standing | None:
        return self._one(source or self._writer, f"{_SELECT} WHERE sha256 = ?", (sha256,))

    def has_edited(self, skill_id: str = "") -> bool:
        """Whether a row, of this skill or of any, is not what was recorded."""
        where, values = (" WHERE skill_id = ?", (skill_id,)) if skill_id else ("", ())
        return any(self._sound.read(row) is None for row in self._writer.rows(f"{_SELECT}{where}", values))

    def bundle(self, sha256: str) -> bytes | None:
        rows = self._writer.rows("SELECT bundle FROM skill_payloads WHERE sha256 = ?", (sha256,))
        return bytes(rows[0][0]) if rows else None

    def manifest_text(self, sha256: str) -> bytes | None:
        """As it was installed; also of a payload that was removed."""
        rows = self._writer.rows("SELECT manifest FROM skill_payloads WHERE sha256 = ?", (sha256,))
        return bytes(rows[0][0]) if rows else None

    def known_folders(self) -> frozenset[str]:
        """Digests of payloads whose files belong on the disk."""
        rows = self._writer.rows("SELECT sha256 FROM skills WHERE status != 'removed'")
        return frozenset(str(row[0]) for row in rows)

    def _one(self, source: Rows, sql: str, parameters: tuple[object, ...]) -> Standing | None:
        found = self._sound.among(source.rows(sql, parameters))
        return found[0] if len(found) == 1 else None

    def _judged(self, row: tuple[Any, ...]) -> Standing | None:
        try:
            standing = parse_standing(row[:-1])
            if self._seals.holds(standing.sealed_bytes(), row[-1], entry=standing.entry):
                return standing
        except (ValueError, TypeError):
            pass
        log.warning("the row of skill %.80s was changed: run palyra skills audit", row[1])
        return None

    # ── inside a transaction ──

    def keep_payload(
        self, tx: Transaction, standing: Standing, *, manifest: bytes, bundle: bytes, tools: Sequence[str]
    ) -> None:
        tx.execute(_KEEP, (standing.sha256, manifest, bundle, sha256_hex(bundle), standing.installed_unix_ms))
        for tool in tools:
            tx.execute("INSERT INTO skill_tools VALUES (?, ?) ON CONFLICT DO NOTHING", (tool, standing.sha256))

    def move(
        self, tx: Transaction, standing: Standing, kind: Move, *, by: str, at_unix_ms: int, reason: str = ""
    ) -> Standing:
        """Judge the move against what is stored now, write it with its entry."""
        stored = self.find(standing.sha256, tx)
        before = stored.status if stored is not None else None
        changed = move(standing, kind, by=by, at_unix_ms=at_unix_ms, reason=reason[:MAX_REASON], before=before)
        return self.put(tx, changed, before=before)

    def mend(self, tx: Transaction, *, by: str, at_unix_ms: int) -> None:
        """Put every edited row into quarantine, sealed, with an entry that says so. Of what it said nothing is kept but
        which payload it was about: it runs again when it was installed and enabled again."""
        for row in tx.rows(_SELECT):
            if self._sound.read(row) is None:
                sha256, skill_id, version, publisher, key_id = map(str, row[:5])
                standing = Standing(
                    sha256=sha256,
                    skill_id=skill_id,
                    version=version if is_version(version) else "0.0.0",
                    publisher=publisher,
                    key_id=key_id,
                    status=Status.QUARANTINED,
                    reason=EDITED,
                    changed_by=by,
                    changed_unix_ms=at_unix_ms,
                )
                self.put(tx, standing, before=None)

    def put(self, tx: Transaction, standing: Standing, *, before: Status | None) -> Standing:
        """Write a standing with the entry that tells of it."""
        details = {
            "version": standing.version,
            "sha256": standing.sha256,
            "publisher": standing.publisher,
            "before": before.value if before is not None else None,
            "after": standing.status.value,
            "reason": standing.reason,
        }
        act = Act(
            kind=ActKind.SKILL_CHANGED,
            actor=standing.changed_by,
            subject=f"skill/{standing.skill_id}",
            details=details,
        )
        entry = record_act(tx, act, at_unix_ms=standing.changed_unix_ms)
        whole = replace(standing, entry=entry)
        tx.execute(_PUT, (*whole.as_row(), self._seals.sign(whole.sealed_bytes())))
        return whole
