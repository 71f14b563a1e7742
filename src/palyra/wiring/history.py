"""Recorded decisions out of a home's journal, for replay, diff and audits: read only, each checked against its entry.

Rules: a call's kept details are used only where they fit the commitment of its entry; what does not, or cannot be read,
is counted and named, never guessed around. Not here: deciding again (engine/replay).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from palyra.engine.replay import RecordedDecision, Replayed, mismatch, read_decision, replay_decision
from palyra.errors import StateError
from palyra.journal.lookup import Lookup
from palyra.model.record import StoredCall
from palyra.policy.bundle import PolicyBundle
from palyra.values import dataclass
from palyra.wiring.versions import Rows, VersionRows

_SINCE = "SELECT call_id FROM calls WHERE opened_unix_ms >= ? ORDER BY opened_unix_ms, call_id"


@dataclass(slots=True, kw_only=True)
class History:
    """Calls since a moment, with what policy said of each. The counts are complete when it was read to its end."""

    rows: Rows
    lookup: Lookup
    since_unix_ms: int = 0
    calls: int = 0
    without_request: int = 0
    """Refused before policy was asked: malformed, an unknown tool, a spent budget."""
    damaged: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[StoredCall, RecordedDecision]]:
        for (call_id,) in self.rows(_SINCE, (self.since_unix_ms,)):
            self.calls += 1
            try:
                stored = self.lookup.call(call_id)
                recorded = read_decision(stored.details) if stored is not None else None
            except (StateError, ValueError):
                self.damaged.append(call_id)
                continue
            if stored is None or recorded is None:
                self.without_request += 1
            else:
                yield stored, recorded

    def flips(self, bundle: PolicyBundle) -> Iterator[tuple[StoredCall, Replayed]]:
        """Every call that this bundle would have decided otherwise."""
        for stored, recorded in self:
            replayed = replay_decision(recorded, bundle)
            if replayed.flips:
                yield stored, replayed


def check_decisions(rows: Rows, lookup: Lookup) -> tuple[int, list[tuple[str, str]]]:
    """`journal verify --replay`: how many decisions were made again, and (call id, what is wrong) for each misfit."""
    versions, bundles = VersionRows(rows), dict[str, PolicyBundle | None]()
    history, checked, wrong = History(rows=rows, lookup=lookup), 0, list[tuple[str, str]]()
    for stored, recorded in history:
        sha256 = recorded.policy_sha256
        if sha256 not in bundles:
            bundles[sha256] = versions.bundle(sha256)
        checked += 1
        problem = mismatch(recorded, bundles[sha256])
        if problem:
            wrong.append((stored.call_id, problem))
    wrong += [(call_id, "its stored record was changed") for call_id in history.damaged]
    return checked, wrong
