"""Single entries and calls read back from the journal's rows, by the writer or by a reader that may write nothing.

Rules: what is kept beside an entry is handed out only where it fits the entry's commitment; an intent only where it is
a leaf of the newest signed tree and no result of its call follows; what stands below index 0 is nobody's entry and is
not shown. The rows come from a function that is handed in. Not here: the whole audit (journal/audit), transactions
(journal/store).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from palyra.errors import StateError, TrustError
from palyra.journal.chain import RESULT
from palyra.journal.checkpoint import open_checkpoint, parse_checkpoint
from palyra.journal.commitments import commit_value, open_salt
from palyra.journal.entry import EntryView, parse_entry
from palyra.journal.merkle import Frontier, leaf_hash
from palyra.model.outcome import BUDGET_NAMES, BudgetView
from palyra.model.record import Checkpoint, Entry, Intent, Owner, Receipt, Recorded, StoredCall
from palyra.signing import NoteVerifier

Rows = Callable[[str, tuple[object, ...]], list[tuple[Any, ...]]]

LEAVES_AT_ONCE = 16_384
BODIES_AT_ONCE = 1024
_OF_A_RESULT = f'"predicateType":"{RESULT}"'.encode()
TREE_SIZE = "SELECT coalesce(max(size), 0) FROM checkpoints"
"""How many entries are signed for, which is all there are."""
_CALL = """SELECT c.call_id, c.run_id, c.tool, c.principal, c.input_sha256, c.status, c.reason,
                  c.owner_boot_id, c.owner_pid, c.owner_start_ticks, c.intent_index, c.result_index, c.opened_unix_ms,
                  c.details, d.data, c.outcome, o.data, {budget}
           FROM calls c JOIN runs r USING (run_id)
           LEFT JOIN blobs d ON d.sha256 = c.details LEFT JOIN blobs o ON o.sha256 = c.outcome """
_OPEN = """SELECT c.call_id, c.run_id, c.tool, c.principal, c.input_sha256, c.status, c.reason,
                  c.owner_boot_id, c.owner_pid, c.owner_start_ticks, c.intent_index, c.result_index, c.opened_unix_ms,
                  NULL, NULL, NULL, NULL, {budget}
           FROM calls c JOIN runs r USING (run_id) WHERE c.status = 'open' ORDER BY c.opened_unix_ms"""


class Lookup:
    def __init__(self, rows: Rows, verifier: NoteVerifier, sealed: Callable[[int], bytes] | None = None) -> None:
        """`sealed` finds the body of an entry that was moved into a sealed file."""
        self._rows = rows
        self._verifier = verifier
        self._sealed = sealed
        self._names: tuple[str, ...] = ()
        """What the rows of runs know of budgets: those of an older database, read where it lies, know less."""

    # ── entries ──

    def checkpoint(self) -> Checkpoint | None:
        """The newest signed head."""
        rows = self._rows("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1", ())
        try:
            return parse_checkpoint(rows[0][0] or "") if rows else None
        except TrustError as error:
            raise StateError(f"The newest checkpoint is damaged: {error}", "Run: palyra journal verify") from error

    def tail(self, count: int, *, before: int | None = None) -> tuple[Entry, ...]:
        """The last `count` entries, or those before an index: the cursor of a list that goes back in time."""
        end = before if before is not None else 1 << 62
        sql = "SELECT idx, leaf_hash, body FROM entries WHERE idx >= 0 AND idx < ? ORDER BY idx DESC LIMIT ?"
        return tuple(self._whole(row) for row in reversed(self._rows(sql, (end, count))))

    def entry(self, index: int) -> Entry | None:
        rows = self._rows("SELECT idx, leaf_hash, body FROM entries WHERE idx = ? AND idx >= 0", (index,))
        return self._whole(rows[0]) if rows else None

    def by_call(self, call_id: str) -> tuple[Entry, ...]:
        sql = """SELECT idx, leaf_hash, body FROM entries, calls
                 WHERE call_id = ? AND idx >= 0 AND idx IN (intent_index, result_index) ORDER BY idx"""
        return tuple(self._whole(row) for row in self._rows(sql, (call_id,)))

    def _whole(self, row: tuple[Any, ...]) -> Entry:
        if row[2] is None and self._sealed is not None:
            return Entry(row[0], as_bytes(row[1]), self._sealed(row[0]))
        return as_entry(row)

    # ── calls ──

    def call(self, call_id: str) -> StoredCall | None:
        """The call's row with its kept records, or `StateError` where these are not what its entries commit to."""
        rows = self._rows(self._with_budget(_CALL) + "WHERE c.call_id = ?", (call_id,))
        if not rows:
            return None
        stored = self._stored(rows[0])
        result = stored.result_index
        first = result if stored.intent_index is None else stored.intent_index
        for field, value, index in (("details", stored.details, first), ("outcome", stored.outcome, result)):
            if value and not self._is_committed(field, value, self.view(index)):
                raise not_what_was_stored()
        return stored

    def open_calls(self) -> tuple[StoredCall, ...]:
        """Rows alone, without what is kept beside them: one that was edited must not hide the others."""
        return tuple(self._stored(row) for row in self._rows(self._with_budget(_OPEN), ()))

    def _with_budget(self, sql: str) -> str:
        if not self._names:
            there = {row[0] for row in self._rows("SELECT name FROM pragma_table_info('runs')", ())}
            self._names = tuple(name for name in BUDGET_NAMES if name in there)
        return sql.format(budget=", ".join(f"r.{name}" for name in self._names))

    def view(self, index: int | None) -> EntryView | None:
        """The entry there, read strictly; None when there is none that can be read."""
        entry = None if index is None else self.entry(index)
        if entry is None or leaf_hash(entry.body) != entry.leaf_hash:
            return None
        try:
            view = parse_entry(entry.body)
        except ValueError:
            return None
        return view if view.index == index else None

    def _is_committed(self, field: str, value: bytes, view: EntryView | None) -> bool:
        if view is None:
            return False
        sql = "SELECT salt, key FROM openings LEFT JOIN run_keys USING (run_id) WHERE entry = ? AND field = ?"
        salts = self._rows(sql, (view.index, field))
        macs = view.predicate.get("commitments")
        if not salts or not isinstance(macs, Mapping):
            return False
        salt = open_salt(as_bytes(salts[0][0]), salts[0][1], view.index, field)
        try:
            return commit_value(field, value, salt).mac == macs.get(field)
        except ValueError:
            return False

    def _stored(self, row: tuple[Any, ...]) -> StoredCall:
        (call_id, run_id, tool, principal, input_sha256, status, reason, boot_id, pid, ticks,
         intent, result, opened_at, details_sha, details, outcome_sha, outcome, *budget) = row  # fmt: skip
        recorded = None
        if status != "open" and (newest := self.checkpoint()) is not None:
            receipt = Receipt(index=result, tree_size=newest.size, checkpoint=newest.note)
            recorded = Recorded(receipt=receipt, budget=BudgetView(**dict(zip(self._names, budget, strict=True))))
        return StoredCall(
            call_id=call_id,
            run_id=run_id,
            tool=tool,
            principal=principal,
            input_sha256=input_sha256,
            status=status,
            reason=reason,
            owner=None if None in (boot_id, pid, ticks) else Owner(boot_id, pid, ticks),
            outcome=_blob(outcome_sha, outcome),
            details=_blob(details_sha, details),
            intent_index=intent,
            result_index=result,
            opened_unix_ms=opened_at,
            recorded=recorded,
        )

    # ── intents, proven ──

    def intents(self, calls: Sequence[StoredCall]) -> dict[str, Intent]:
        """Those whose entry is in the tree of the newest checkpoint, which this installation signed, and has no result.

        The whole tree is hashed once, because an entry and its leaf hash can be edited together.
        """
        places = {call.call_id: call.intent_index for call in calls if call.intent_index is not None}
        leaves = self._signed_leaves(set(places.values())) if places else {}
        ended = self._ended({name: place for name, place in places.items() if place in leaves})
        sql = "SELECT data FROM calls JOIN blobs ON sha256 = details WHERE call_id = ?"
        found: dict[str, Intent] = {}
        for call in calls:
            entry, view = self.entry(call.intent_index or 0), self.view(call.intent_index)
            if entry is None or view is None or leaves.get(view.index) != leaf_hash(entry.body):
                continue
            if call.call_id in ended:
                continue
            rows = self._rows(sql, (call.call_id,))
            details = as_bytes(rows[0][0]) if rows else b""
            proven = details if self._is_committed("details", details, view) else b""
            found[call.call_id] = Intent(body=entry.body, details=proven)
        return found

    def _ended(self, places: Mapping[str, int]) -> Set[str]:
        """Of these calls, by the places of their intents, those that have a result, whatever their rows say: who sets
        a row back to open would have a second end signed, and proven to others. Where an entry behind an intent is not
        what was hashed, or was sealed away (none behind an open call is), nobody knows: then it counts as ended."""
        found: set[str] = set()
        sql = "SELECT idx, leaf_hash, body FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        end = self._size()
        for first in range(min(places.values(), default=end), end, BODIES_AT_ONCE):
            for entry in map(as_entry, self._rows(sql, (first, min(first + BODIES_AT_ONCE, end)))):
                if leaf_hash(entry.body) != entry.leaf_hash:
                    found |= {call_id for call_id, place in places.items() if place < entry.index}
                elif _OF_A_RESULT in entry.body:
                    found |= _call_of(entry.body)
        return found

    # ── acts, proven ──

    def acts_about(self, subjects: Set[str], act: str) -> dict[str, EntryView]:
        """The newest act of this kind about each, where there is one; its body never leaves the database.

        `StateError` where one that was found is not in the signed tree: then nothing is known about any of them.
        """
        found: dict[str, EntryView] = {}
        sql, end = "SELECT idx, body FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx DESC", self._size()
        while end > 0 and len(found) < len(subjects):
            first = max(end - BODIES_AT_ONCE, 0)
            told = (self.view(index) for index, body in self._rows(sql, (first, end)) if act.encode() in as_bytes(body))
            for view in told:
                if view is not None and view.act == act and view.subject in subjects:
                    found.setdefault(view.subject, view)
            end = first
        leaves = self._signed_leaves({view.index for view in found.values()}) if found else {}
        for view in found.values():
            entry = self.entry(view.index)
            if entry is None or leaves.get(view.index) != leaf_hash(entry.body):
                raise not_what_was_stored()
        return found

    def _size(self) -> int:
        size: int = self._rows(TREE_SIZE, ())[0][0]
        return size

    def _signed_leaves(self, wanted: Set[int]) -> dict[int, bytes]:
        newest, tree, kept = self.checkpoint(), Frontier(), {}
        if newest is None:
            return {}
        sql = "SELECT idx, leaf_hash FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        try:
            signed = open_checkpoint(newest.note, self._verifier)
            for first in range(0, signed.size, LEAVES_AT_ONCE):
                for index, leaf in self._rows(sql, (first, min(first + LEAVES_AT_ONCE, signed.size))):
                    if index != tree.size or len(as_bytes(leaf)) != len(leaf_hash(b"")):
                        return {}
                    tree.append(leaf)
                    if index in wanted:
                        kept[index] = leaf
        except TrustError:
            return {}
        return kept if (tree.size, tree.root()) == (signed.size, signed.root) else {}


def _call_of(body: bytes) -> Set[str]:
    try:
        return {str(parse_entry(body).call_id)}
    except ValueError:
        return set()


def not_what_was_stored() -> StateError:
    return StateError("A stored record was changed.", "Run: palyra journal verify")


def as_entry(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], as_bytes(row[1]), as_bytes(row[2]))


def as_bytes(value: object) -> bytes:
    """Somebody else may have put text or nothing there; then it is not what was hashed."""
    return value if isinstance(value, bytes) else b""


def _blob(digest: bytes | None, data: bytes | None) -> bytes:
    """What was kept, if retention has not removed it; never something else in its place."""
    if digest is None or data is None:
        return b""
    if hashlib.sha256(data).digest() != digest:
        raise not_what_was_stored()
    return data
