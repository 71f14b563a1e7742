"""What people were shown of calls, removed with what is kept of those: a request to approve holds the arguments too.

Rules: it goes where the request is decided and lets nothing through any more; one that still stands says what it is
for, and is counted, so that whoever removes can be told. The row, its seal and its digests stay, and so do the entries.
Not here: marking and overwriting other values (state/retention).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from palyra.journal.entry import parse_entry
from palyra.state.sealed import SealedBodies
from palyra.state.transaction import Transaction
from palyra.values import dataclass

_STANDS = """(state = 'pending' AND expires_unix_ms > ?) OR (state = 'approved' AND NOT (scope = 'once' AND uses > 0)
             AND coalesce(valid_until_unix_ms, 0) > ?)"""


@dataclass(frozen=True, slots=True)
class Shown:
    removed: int
    standing: int


def doom_shown_before(tx: Transaction, before_unix_ms: int, principal: str | None, *, at_unix_ms: int) -> Shown:
    """Of everything that was asked before then, by one principal or by all."""
    if principal is None:
        return _doom(tx, "asked_unix_ms < ?", (before_unix_ms,), at_unix_ms)
    return _doom(tx, "asked_unix_ms < ? AND principal = ?", (before_unix_ms, principal), at_unix_ms)


def doom_shown_of(tx: Transaction, call_id: str, entry: int | None, segments: Path, *, at_unix_ms: int) -> Shown:
    """Of one call: of what it asked, and of what let it through, which an earlier call of the same content asked."""
    ids = (call_id, _approval_of(tx, segments, entry))
    return _doom(tx, "(call_id = ? OR approval_id = ?)", ids, at_unix_ms)


def _doom(tx: Transaction, where: str, given: tuple[object, ...], at_unix_ms: int) -> Shown:
    sql = f"""SELECT shown, CASE WHEN {_STANDS} THEN 1 ELSE 0 END FROM approvals
              WHERE {where} AND EXISTS (SELECT 1 FROM blobs WHERE sha256 = shown)"""  # noqa: S608  # texts of our own
    found = tx.rows(sql, (at_unix_ms, at_unix_ms, *given))
    standing = {shown for shown, stands in found if stands}
    over = {shown for shown, _ in found} - standing
    for digest in over:
        tx.execute("INSERT INTO doomed VALUES (?) ON CONFLICT DO NOTHING", (digest,))
    return Shown(len(over), len(standing))


def _approval_of(tx: Transaction, segments: Path, entry: int | None) -> str:
    """The approval that let the call through, as its own entry names it."""
    rows = [] if entry is None else tx.rows("SELECT idx, body FROM entries WHERE idx = ?", (entry,))
    body = b"".join(SealedBodies(tx.rows, segments).body(index) if body is None else body for index, body in rows)
    try:
        decision = parse_entry(body).predicate.get("decision")
    except ValueError:
        return ""
    return str(decision.get("approval_id") or "") if isinstance(decision, Mapping) else ""
