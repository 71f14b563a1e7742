"""What is kept beside the entries, removed on purpose: by age, by principal, or one call's; and the journal says so.

Rules: an entry never changes; what goes is the value that its commitment hides, and the salt that would open it, so
that neither can be shown or guessed any more; each removal is an act in the same transaction, and the audit takes
nothing else for an excuse. Values that nothing refers to any more are then overwritten (`sweep`); a crash before that
leaves them marked, and the next sweep takes them.

Not here: old entries themselves (state/segments), what people were shown (state/retention_shown), blobs of artifacts
(artifacts/store).
"""

from __future__ import annotations

import time

from palyra.errors import StateError
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.state.retention_shown import Shown, doom_shown_before, doom_shown_of
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

FIELDS = ("details", "outcome")
CALLS_AT_ONCE = 5000
"""In one commit: half a second's, while others wait for their turn."""
BREATH_S = 0.05
"""Longer than anybody who waits for a turn sleeps between two tries."""
_CHOSEN = "closed_unix_ms < ? AND (details IS NOT NULL OR outcome IS NOT NULL OR input_sha256 <> '')"


class NoSuchCall(StateError):
    """What was asked for is not there; nothing is wrong with the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    calls: int = 0
    blobs: int = 0
    openings: int = 0
    standing_approvals: int = 0
    """They still show what was asked."""

    def with_more(self, more: Removed) -> Removed:
        return Removed(
            calls=self.calls + more.calls,
            blobs=self.blobs + more.blobs,
            openings=self.openings + more.openings,
            standing_approvals=self.standing_approvals,  # each time the same
        )


def delete_records(
    writer: Writer, *, before_unix_ms: int, at_unix_ms: int, principal: str | None = None, actor: str = PALYRA
) -> Removed:
    """Values kept of calls that ended before then, of one principal or of all. Their entries and rows stay."""

    def work(tx: Transaction) -> Removed:
        tx.execute("PRAGMA secure_delete = ON")
        chosen = _CHOSEN if principal is None else f"{_CHOSEN} AND principal = ?"
        sql = f"SELECT call_id, intent_index, result_index FROM calls WHERE {chosen} LIMIT ?"  # noqa: S608  # our own
        given = (before_unix_ms,) if principal is None else (before_unix_ms, principal)
        calls = tx.rows(sql, (*given, CALLS_AT_ONCE))
        shown = doom_shown_before(tx, before_unix_ms, principal, at_unix_ms=at_unix_ms)
        removed = _remove(tx, calls, shown)
        if not calls and not shown.removed:
            return removed
        told = {"before_unix_ms": before_unix_ms, "principal": principal, "calls": removed.calls}
        act = Act(
            kind=ActKind.RECORDS_DELETED,
            actor=actor,
            subject="journal",
            details=told | {"blobs": removed.blobs, "openings": removed.openings},
        )
        index = record_act(tx, act, at_unix_ms=at_unix_ms)
        _tell(tx, index, act.kind, principal=principal, before_unix_ms=before_unix_ms)
        return removed

    removed, _ = writer.commit_now(work)
    some = removed
    while some.calls == CALLS_AT_ONCE:
        time.sleep(BREATH_S)
        some, _ = writer.commit_now(work)
        removed = removed.with_more(some)
    sweep(writer)
    return removed


def redact_call(writer: Writer, call_id: str, *, actor: str, reason: str, at_unix_ms: int) -> Removed:
    """Everything kept of one call, and every opening of its commitments: none of it can be shown or proven again."""

    def work(tx: Transaction) -> Removed:
        tx.execute("PRAGMA secure_delete = ON")
        sql = "SELECT call_id, intent_index, result_index FROM calls WHERE call_id = ? AND status <> 'open'"
        calls = tx.rows(sql, (call_id,))
        if not calls:
            raise NoSuchCall(f"There is no call {call_id[:40]!r} that has ended.", "List them: palyra journal tail")
        fields = tx.rows("SELECT DISTINCT field FROM openings WHERE entry IN (?, ?)", (calls[0][1], calls[0][2]))
        first = calls[0][2] if calls[0][1] is None else calls[0][1]
        shown = doom_shown_of(tx, call_id, first, writer.home.segments, at_unix_ms=at_unix_ms)
        removed = _remove(tx, calls, shown)
        act = Act(
            kind=ActKind.OPENING_DELETED,
            actor=actor,
            subject=f"call/{call_id}",
            details={"call_id": call_id, "fields": sorted(field for (field,) in fields), "reason": reason},
        )
        index = record_act(tx, act, at_unix_ms=at_unix_ms)
        _tell(tx, index, act.kind, call_id=call_id)
        return removed

    removed, _ = writer.commit_now(work)
    sweep(writer)
    return removed


def _remove(tx: Transaction, calls: list[tuple[str, int | None, int | None]], shown: Shown) -> Removed:
    openings, blobs = 0, set()
    for call_id, intent, result in calls:
        blobs |= doom(tx, "call_id = ?", (call_id,))
        openings += tx.execute("DELETE FROM openings WHERE entry IN (?, ?)", (intent, result)).rowcount
        # A plain digest of an input can be guessed: it goes with the input. The id stays claimed.
        sql = "UPDATE calls SET details = NULL, outcome = NULL, input_sha256 = '' WHERE call_id = ?"
        tx.execute(sql, (call_id,))
    return Removed(
        calls=len(calls), blobs=len(blobs) + shown.removed, openings=openings, standing_approvals=shown.standing
    )


def doom(tx: Transaction, where: str, given: tuple[object, ...]) -> set[bytes]:
    """Mark what these calls keep: it goes as soon as no call refers to it."""
    found = tx.rows(f"SELECT details, outcome FROM calls WHERE {where}", given)  # noqa: S608  # texts of our own
    digests = {digest for row in found for digest in row if digest is not None}
    for digest in digests:
        tx.execute("INSERT INTO doomed VALUES (?) ON CONFLICT DO NOTHING", (digest,))
    return digests


def _tell(
    tx: Transaction,
    index: int,
    kind: ActKind,
    *,
    call_id: str | None = None,
    principal: str | None = None,
    before_unix_ms: int | None = None,
) -> None:
    sql = "INSERT INTO deletions (entry, act, call_id, principal, before_unix_ms) VALUES (?, ?, ?, ?, ?)"
    tx.execute(sql, (index, kind.value, call_id, principal, before_unix_ms))


def sweep(writer: Writer) -> None:
    """Overwrite what was marked and no call refers to, keys of runs that open nothing, and the log behind them."""
    writer.sweep(_SWEEP)


_SWEEP = (
    """DELETE FROM doomed WHERE sha256 IN (SELECT details FROM calls WHERE details IS NOT NULL
                                           UNION ALL SELECT outcome FROM calls WHERE outcome IS NOT NULL)""",
    "DELETE FROM blobs WHERE sha256 IN (SELECT sha256 FROM doomed)",
    "DELETE FROM doomed",
    "DELETE FROM run_keys WHERE run_id NOT IN (SELECT run_id FROM openings WHERE run_id IS NOT NULL)",
    "DELETE FROM created_paths WHERE run_id NOT IN (SELECT run_id FROM run_keys)",  # names of files
)
