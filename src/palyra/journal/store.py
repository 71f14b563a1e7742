"""The journal on the database: calls opened and closed with their entries, and everything read back.

Rules: a call's row, its spent budget, its kept records and its entry commit together or not at all; a call id is
claimed once; what is kept beside an entry is bound to it by a salted commitment, so that it cannot be changed alone.
The budget's rows are another room's: its functions are handed in.

Not here: durability, locks and signatures (state/writer), what entries look like (journal/chain).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import orjson

from palyra.attest import check_outcome
from palyra.errors import DuplicateCall, Reason, Rejected, StateError
from palyra.journal.acts import Act, record_act
from palyra.journal.audit import Audit, Head, Kept, Report, run_audit
from palyra.journal.chain import SALT_BYTES, EntryView, commit_value
from palyra.journal.lookup import Lookup, as_bytes, as_entry, not_what_was_stored
from palyra.journal.standing import ApprovalRow, RunRow
from palyra.model.approval import COLUMNS, Permission, parse_row
from palyra.model.record import (
    Checkpoint,
    Closing,
    Entry,
    EntryDraft,
    Intent,
    Opening,
    Owner,
    Receipt,
    Recorded,
    RunSpec,
    StoredCall,
)
from palyra.signing import PublicKey
from palyra.state.db import Home, ReadHome, snapshot, strangers
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

_INSERT = """INSERT INTO calls (call_id, run_id, tool, principal, input_sha256, status, reason, owner_boot_id,
                 owner_pid, owner_start_ticks, details, outcome, intent_index, result_index, opened_unix_ms,
                 closed_unix_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class Budget(Protocol):
    """The ledger's rows; budget/store fits."""

    def ensure_run(self, tx: Transaction, run: RunSpec) -> bool:
        """Store the run if it is new. False when it is another principal's."""

    def spend_call(self, tx: Transaction, run_id: str) -> tuple[int, int]:
        """(calls used, calls max) with this one, or `Rejected`."""

    def spend_attempt(self, tx: Transaction, run_id: str) -> tuple[int, int]:
        """The same for a refusal, which is only counted."""

    def read_ledger(self, source: Transaction | Writer, run_id: str) -> tuple[int, int, int, int] | None: ...


class Approvals(Protocol):
    """The grants' rows; approvals/store fits."""

    def use(self, tx: Transaction, permission: Permission, *, at_unix_ms: int) -> None:
        """`Rejected` when the approval no longer covers the call."""


class JournalStore:
    def __init__(self, writer: Writer, budget: Budget, approvals: Approvals | None = None) -> None:
        self._writer = writer
        self._budget = budget
        self._approvals = approvals
        self._read = Lookup(writer.rows, writer.home.verifier)
        self._abandoned: set[str] = set()
        self._open_here: set[str] = set()
        """Calls of this process that run now: alone, one gains nothing by waiting for others to share its commit."""

    # ── the engine's port ──

    async def open_call(self, opening: Opening) -> Recorded:
        done = None if self._open_here else self._writer.commit_alone(lambda tx: self._open(tx, opening))
        if done is not None:
            self._open_here.add(opening.call_id)
            return _recorded(done[1], *done[0])
        future = self._writer.commit(lambda tx: self._open(tx, opening))
        try:
            (used, most), receipt = await future
        except asyncio.CancelledError:
            # Cancelled after the commit and before the answer: the call is open, though its caller cannot know.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._abandoned.add(opening.call_id)
            raise
        self._open_here.add(opening.call_id)
        return _recorded(receipt, used, most)

    def close_now(self, closing: Closing) -> Recorded | None:
        if self._open_here != {closing.call_id}:
            return None
        done = self._writer.commit_alone(lambda tx: self._close(tx, closing), closing=True)
        if done is None:
            return None
        self._open_here.discard(closing.call_id)
        return _recorded(done[1], *done[0])

    async def close_call(self, closing: Closing) -> Recorded:
        self._open_here.discard(closing.call_id)
        if closing.call_id in self._abandoned:
            closing = replace(closing, opened=True)
        (used, most), receipt = await self._writer.commit_closing(lambda tx: self._close(tx, closing))
        self._abandoned.discard(closing.call_id)
        return _recorded(receipt, used, most)

    async def find_call(self, call_id: str) -> StoredCall | None:
        """Whoever asks must check the principal before showing any of it."""
        return checked_call(self._read, call_id, self._writer.home.key.public)

    async def budget(self, run_id: str) -> tuple[int, int, int, int] | None:
        return self._budget.read_ledger(self._writer, run_id)

    async def open_calls(self) -> Sequence[StoredCall]:
        return self._read.open_calls()

    async def find_intents(self, calls: Sequence[StoredCall]) -> Mapping[str, Intent]:
        return self._read.intents(calls)

    # ── acts and queries ──

    async def record_act(self, act: Act, *, at_unix_ms: int) -> Receipt:
        """For an act that changes no row of ours; one that does is recorded in the transaction of its change."""
        _, receipt = await self._writer.commit(lambda tx: record_act(tx, act, at_unix_ms=at_unix_ms))
        assert receipt is not None, "an entry was appended"
        return receipt

    def checkpoint(self) -> Checkpoint | None:
        """The newest signed head."""
        return self._read.checkpoint()

    def tail(self, count: int, *, before: int | None = None) -> tuple[Entry, ...]:
        """The last `count` entries, or those before an index: the cursor of a list that goes back in time."""
        return self._read.tail(count, before=before)

    def entry(self, index: int) -> Entry | None:
        return self._read.entry(index)

    def by_call(self, call_id: str) -> tuple[Entry, ...]:
        return self._read.by_call(call_id)

    # ── inside a transaction ──

    def _open(self, tx: Transaction, opening: Opening) -> tuple[int, int]:
        if tx.execute("SELECT 1 FROM calls WHERE call_id = ?", (opening.call_id,)).fetchone():
            raise DuplicateCall(opening.call_id)
        if not self._budget.ensure_run(tx, opening.run):
            raise Rejected(
                Reason.CAPABILITY_DENIED,
                f"Run {opening.run.run_id} belongs to another principal.",
                "Start a run of your own: leave run_id out.",
            )
        spent = self._budget.spend_call(tx, opening.run.run_id)
        at = opening.opened_unix_ms
        if opening.permission is not None:
            if self._approvals is None:
                raise StateError("Approvals are not kept here.")
            self._approvals.use(tx, opening.permission, at_unix_ms=at)
        index = tx.append(_bound(opening.entry, "details", opening.details), at_unix_ms=at)
        details = tx.keep_blob(opening.details, at_unix_ms=at)
        owner = opening.owner
        tx.execute(
            _INSERT,
            (opening.call_id, opening.run.run_id, opening.tool, opening.principal, opening.input_sha256, "open", None,
             owner.boot_id, owner.pid, owner.start_ticks, details, None, index, None, at, None),
        )  # fmt: skip
        return spent

    def _close(self, tx: Transaction, closing: Closing) -> tuple[int, int]:
        at = closing.closed_unix_ms
        # Only here is it known for certain whether an intent came first and whether a row is kept.
        facts = {"opened": closing.opened, "kept": closing.opened or closing.keep_call}
        entry = replace(closing.entry, predicate={**closing.entry.predicate, **facts})
        if facts["kept"]:
            entry = _bound(entry, "outcome", closing.outcome)
        if closing.opened:
            # The details that are kept are the intent's, whatever this entry was drafted with.
            entry = replace(entry, commitments=tuple(c for c in entry.commitments if c.field != "details"))
            self._finish_open(tx, closing, tx.append(entry, at_unix_ms=at))
            ledger = self._budget.read_ledger(tx, closing.run.run_id)
            return ledger[:2] if ledger is not None else (0, 0)
        return self._refuse(tx, closing, entry)

    def _finish_open(self, tx: Transaction, closing: Closing, index: int) -> None:
        at = closing.closed_unix_ms
        sql = """UPDATE calls SET status = ?, reason = ?, outcome = ?, result_index = ?, closed_unix_ms = ?
                 WHERE call_id = ? AND run_id = ? AND status = 'open'"""
        outcome = tx.keep_blob(closing.outcome, at_unix_ms=at)
        ids = (closing.call_id, closing.run.run_id)
        if tx.execute(sql, (closing.status, closing.reason, outcome, index, at, *ids)).rowcount != 1:
            if tx.execute("SELECT 1 FROM calls WHERE call_id = ? AND run_id = ?", ids).fetchone():
                raise DuplicateCall(closing.call_id)
            raise StateError(f"Call {closing.call_id} was never opened.")

    def _refuse(self, tx: Transaction, closing: Closing, entry: EntryDraft) -> tuple[int, int]:
        at, run_id = closing.closed_unix_ms, closing.run.run_id
        if closing.keep_call and tx.execute("SELECT 1 FROM calls WHERE call_id = ?", (closing.call_id,)).fetchone():
            raise DuplicateCall(closing.call_id)
        # What somebody sends under another principal's run id is recorded, and costs that principal nothing.
        spent = (0, closing.run.calls_max)
        if self._budget.ensure_run(tx, closing.run):
            spent = self._budget.spend_attempt(tx, run_id)
        if not closing.keep_call:
            tx.append(entry, at_unix_ms=at)
            return spent
        index = tx.append(_bound(entry, "details", closing.details), at_unix_ms=at)
        details, outcome = (tx.keep_blob(data, at_unix_ms=at) for data in (closing.details, closing.outcome))
        tx.execute(
            _INSERT,
            (closing.call_id, run_id, closing.tool, closing.principal, closing.input_sha256, closing.status,
             closing.reason, None, None, None, details, outcome, None, index, at, at),
        )  # fmt: skip
        return spent


class JournalRows:
    """The rows an audit reads, from one snapshot (`state.db.snapshot`)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def entries(self) -> Iterator[Entry]:
        """All there are: one at a negative index was put there by somebody else."""
        for row in self._connection.execute("SELECT idx, leaf_hash, body FROM entries ORDER BY idx"):
            yield as_entry(row)

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        for size, note in self._connection.execute("SELECT size, note FROM checkpoints ORDER BY size"):
            yield size, note if isinstance(note, str) else ""

    def head(self) -> Head:
        row = self._connection.execute("SELECT size, frontier FROM head").fetchone()
        return Head(size=row[0], frontier=as_bytes(row[1])) if row else Head(size=-1, frontier=b"")

    def leaves(self, first: int, end: int) -> Iterator[bytes]:
        """Leaf hashes, for proofs."""
        sql = "SELECT leaf_hash FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        for (leaf,) in self._connection.execute(sql, (first, end)):
            yield as_bytes(leaf)

    def count_calls(self) -> int:
        count: int = self._connection.execute("SELECT count(*) FROM calls").fetchone()[0]
        return count

    def runs(self) -> Iterator[RunRow]:
        sql = "SELECT run_id, principal, calls_used, attempts_used, next_sequence FROM runs"
        for row in self._connection.execute(sql):
            yield RunRow(*row)

    def approvals(self) -> Iterator[ApprovalRow]:
        there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'approvals'"
        if self._connection.execute(there).fetchone() is None:
            return  # read where it lies, from before there were any; entries that speak of some find them missing
        salts = "SELECT field, salt FROM openings WHERE entry IN (?, ?) AND field IN ('request', 'terms')"
        for row in self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM approvals"):  # noqa: S608
            try:
                approval = parse_row(row)
            except ValueError:
                yield ApprovalRow(approval_id=str(row[0]), values={}, kept=())
                continue
            indexes = (approval.requested_index, approval.decided_index)
            found = {name: as_bytes(salt) for name, salt in self._connection.execute(salts, indexes)}
            kept = [("request", found.get("request", b""), approval.request_bytes())]
            if approval.decided_index is not None:
                kept.append(("terms", found.get("terms", b""), approval.terms_bytes()))
            values = dict(zip(COLUMNS, row, strict=True))
            yield ApprovalRow(approval_id=approval.approval_id, values=values, kept=tuple(kept))

    def kept(self, view: EntryView) -> Kept:
        """The call's row and kept values as far as this entry speaks of them."""
        sql = """SELECT c.run_id, c.tool, c.principal, c.status, c.reason, c.intent_index, c.result_index,
                        c.owner_boot_id, c.owner_pid, c.owner_start_ticks, d.data, o.data
                 FROM calls c LEFT JOIN blobs d ON d.sha256 = c.details LEFT JOIN blobs o ON o.sha256 = c.outcome
                 WHERE c.call_id = ?"""
        found = self._connection.execute(sql, (view.call_id,)).fetchone()
        if found is None:
            return Kept(row=None)
        run_id, tool, principal, status, reason, intent, result, *owner, details, outcome = found
        row = {"run_id": run_id, "tool": tool, "principal": principal, "intent_index": intent}
        if "status" in view.predicate:
            row |= {"status": status, "reason": reason, "result_index": result}
        else:
            row |= {"owner": dict(zip(("boot_id", "pid", "start_ticks"), owner, strict=True))}
        sql = "SELECT field, salt FROM openings WHERE entry = ?"
        salts = {name: as_bytes(salt) for name, salt in self._connection.execute(sql, (view.index,))}
        macs = view.predicate.get("commitments")
        committed = salts.keys() | (macs.keys() if isinstance(macs, Mapping) else set())
        values = {"details": details, "outcome": outcome}
        # One without an opening is handed on too: whoever deletes that must not get to choose the value.
        known = tuple((n, salts.get(n, b""), v) for n, v in values.items() if v is not None and n in committed)
        return Kept(row=row, values=known)


def verify_journal(
    home: Home | ReadHome,
    *,
    is_alive: Callable[[Owner], bool],
    known: Sequence[str] = (),
    every_signature: bool = False,
) -> Report:
    """The whole audit of a home's journal, from one snapshot, while others go on writing."""
    with snapshot(home.database) as connection:
        rows = JournalRows(connection)
        audit = Audit(
            verifier=home.verifier, is_alive=is_alive, known=known, every_signature=every_signature, kept=rows.kept
        )
        try:
            audit.schema(strangers(connection))
            entries, checkpoints = rows.entries(), rows.checkpoints()
            return run_audit(
                audit,
                entries,
                checkpoints,
                head=rows.head(),
                rows=rows.count_calls(),
                runs=rows.runs(),
                approvals=rows.approvals(),
            )
        except sqlite3.Error as error:
            return audit.break_off(f"The database cannot be read any further: {error}.")


def checked_call(read: Lookup, call_id: str, key: PublicKey) -> StoredCall | None:
    """A call with the outcome that was attested for it, or `StateError`: a retry must not be answered by a forger."""
    stored = read.call(call_id)
    if stored is None or stored.status == "open" or not stored.outcome:
        return stored
    view = read.view(stored.result_index)
    try:
        outcome = orjson.loads(stored.outcome)
        attested = outcome["attestation"]
        sound = not check_outcome({**outcome, "receipt": None}, key)
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise not_what_was_stored() from error
    row = [stored.call_id, stored.run_id, stored.tool, stored.status, stored.reason]
    if (
        not sound
        or view is None
        or [attested[name] for name in ("call_id", "run_id", "tool", "status", "reason")] != row
        or attested["input_sha256"] not in (stored.input_sha256, "")
        or attested["execution_sha256"] != view.predicate.get("execution_sha256")
        or view.predicate.get("principal") != stored.principal
    ):
        raise not_what_was_stored()
    return stored


def _bound(entry: EntryDraft, field: str, data: bytes) -> EntryDraft:
    """The entry with a commitment to what is kept beside it."""
    if any(commitment.field == field for commitment in entry.commitments):
        return entry
    return replace(entry, commitments=(*entry.commitments, commit_value(field, data, os.urandom(SALT_BYTES))))


def _recorded(receipt: Receipt | None, used: int, most: int) -> Recorded:
    assert receipt is not None, "an entry was appended"
    return Recorded(receipt=receipt, calls_used=used, calls_max=most)
