"""Audit reports as rows: what was found in which payload, when and for whom. The newest of a payload counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from palyra.canon import Json, canonical
from palyra.skills.findings import Check, CheckStatus
from palyra.skills.store.seals import Seals
from palyra.state.database import Rows
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

KEPT = 20
"""Reports of one payload; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    sha256: str
    at_unix_ms: int
    by: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> CheckStatus:
        found = {check.status for check in self.checks}
        worst = (CheckStatus.FAIL, CheckStatus.WARN)
        return next((status for status in worst if status in found), CheckStatus.PASS)

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(check.check_id for check in self.checks if check.status is CheckStatus.FAIL)

    def as_json(self) -> dict[str, Json]:
        return {
            "sha256": self.sha256,
            "at_unix_ms": self.at_unix_ms,
            "by": self.by,
            "verdict": self.verdict.value,
            "checks": [check.as_json() for check in self.checks],
        }


class ReportRows:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seals = Seals(writer, "skill report v1")

    def newest(self, sha256: str, source: Rows | None = None) -> Report | None:
        found = self.history(sha256, source, count=1)
        return found[0] if found else None

    def history(self, sha256: str, source: Rows | None = None, *, count: int = KEPT) -> tuple[Report, ...]:
        sql = "SELECT body, seal FROM skill_reports WHERE sha256 = ? ORDER BY number DESC LIMIT ?"
        rows = (source or self._writer).rows(sql, (sha256, count))
        return tuple(
            _parse(bytes(body)) for body, seal in rows if self._seals.holds(bytes(body), bytes(seal), entry=1 << 60)
        )

    def keep(self, tx: Transaction, report: Report) -> None:
        body = canonical(report.as_json())
        number = tx.rows("SELECT coalesce(max(number), 0) + 1 FROM skill_reports")[0][0]
        tx.execute(
            "INSERT INTO skill_reports (number, sha256, at_unix_ms, body, seal) VALUES (?, ?, ?, ?, ?)",
            (number, report.sha256, report.at_unix_ms, body, self._seals.sign(body)),
        )
        tx.execute(
            "DELETE FROM skill_reports WHERE sha256 = ? AND number NOT IN "
            "(SELECT number FROM skill_reports WHERE sha256 = ? ORDER BY number DESC LIMIT ?)",
            (report.sha256, report.sha256, KEPT),
        )


def _parse(body: bytes) -> Report:
    value = orjson.loads(body)
    return Report(
        sha256=value["sha256"],
        at_unix_ms=value["at_unix_ms"],
        by=value["by"],
        checks=_checks(value["checks"]),
    )


def _checks(items: Sequence[dict[str, Json]]) -> tuple[Check, ...]:
    return tuple(Check(**{**item, "status": CheckStatus(item["status"])}) for item in items)
