"""The journal on the database: calls opened and closed with their entries, and everything read back.

Rules: a call's row, its spent budget, its kept records and its entry commit together or not at all; a call id is
claimed once; what is kept beside an entry is bound to it by a salted commitment, so that it cannot be changed alone.
The budget's rows are another room's: its functions are handed in.

Not here: durability, locks and signatures (state/writer), what entries look like (journal/chain).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import orjson

from palyra.attest import check_outcome
from palyra.budget.ledger import Ledger, Share
from palyra.canon import Json
from palyra.errors import DuplicateCall, Reason, Rejected, StateError
from palyra.journal.acts import Act
from palyra.journal.commitments import SALT_BYTES, commit_value
from palyra.journal.keys import Keys
from palyra.journal.lookup import Lookup, not_what_was_stored
from palyra.model.approval import Permission
from palyra.model.budget import Spending
from palyra.model.outcome import BudgetView
from palyra.model.record import (
    Checkpoint,
    Closing,
    Entry,
    EntryDraft,
    Intent,
    Opening,
    Receipt,
    Recorded,
    RunSpec,
    StoredCall,
)
from palyra.state.sealed import SealedBodies
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

if TYPE_CHECKING:
    from palyra.state.rows import JournalRows
    from palyra.state.verifying import verify_journal

__all__ = ["Budget", "JournalRows", "JournalStore", "checked_call", "verify_journal"]

_INSERT = """INSERT INTO calls (call_id, run_id, tool, principal, input_sha256, status, reason, owner_boot_id,
                 owner_pid, owner_start_ticks, details, outcome, intent_index, result_index, opened_unix_ms,
                 closed_unix_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def __getattr__(name: str) -> object:
    """The audit, for whoever verifies: most who come here only write."""
    if name == "JournalRows":
        from palyra.state.rows import JournalRows

        return JournalRows
    if name == "verify_journal":
        from palyra.state.verifying import verify_journal

        return verify_journal
    raise AttributeError(name)


class Budget(Protocol):
    """The ledger's rows; budget/store fits."""

    def ensure_run(self, tx: Transaction, run: RunSpec) -> str | None:
        """Store the run if it is new. What its first entry tells of the row, empty where it has one; None when it is
        another principal's."""

    def spend_call(
        self, tx: Transaction, run: RunSpec, call_id: str, reserve: Spending, *, looks_new: bool
    ) -> tuple[int, BudgetView, str] | None:
        """The number of the call's entry in its run, and the budget with this one, what it may use held back for it;
        or `Rejected`. The run is stored if it is new, and its first entry tells the last; None when it is another
        principal's."""

    def settle(
        self, tx: Transaction, run: RunSpec, call_id: str, spent: Spending | None, *, holds: bool = False
    ) -> tuple[int, Spending, BudgetView]:
        """The number of the call's entry in its run, what counts as used, and the budget with it."""

    def spend_attempt(self, tx: Transaction, run_id: str) -> BudgetView:
        """For a refusal, which is only counted."""

    def read_ledger(self, source: Transaction | Writer, run_id: str) -> Ledger | None: ...
    def read_share(self, source: Transaction | Writer, run: RunSpec) -> Share | None: ...


class Approvals(Protocol):
    """The grants' rows; approvals/store fits."""

    def use(self, tx: Transaction, permission: Permission, *, at_unix_ms: int) -> None:
        """`Rejected` when the approval no longer covers the call."""


class Told(Protocol):
    """Hears at once of a commit that held one call's opening or closing and nothing else; wiring/known_runs fits."""

    def opened(self, opening: Opening, budget: BudgetView) -> None: ...
    def closed(self, closing: Closing, budget: BudgetView) -> None: ...


class JournalStore:
    def __init__(
        self, writer: Writer, budget: Budget, approvals: Approvals | None = None, told: Told | None = None
    ) -> None:
        self._writer = writer
        self._told = told
        self._budget = budget
        self._approvals = approvals
        sealed = SealedBodies(writer.rows, writer.home.segments)
        self._read = Lookup(writer.rows, writer.home.verifier, sealed.body)
        self._abandoned: set[str] = set()
        self._open_here: set[str] = set()
        """Calls of this process that run now: alone, one gains nothing by waiting for others to share its commit."""

    # ── the engine's port ──

    async def open_call(self, opening: Opening) -> Recorded:
        done = None if self._open_here else self._writer.commit_alone(lambda tx: self._open(tx, opening))
        if done is not None:
            if self._told is not None:
                self._told.opened(opening, done[0])
            self._open_here.add(opening.call_id)
            return _recorded(done[1], done[0])
        future = self._writer.commit(lambda tx: self._open(tx, opening))
        try:
            budget, receipt = await future
        except asyncio.CancelledError:
            # Cancelled after the commit and before the answer: the call is open, though its caller cannot know.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._abandoned.add(opening.call_id)
            raise
        self._open_here.add(opening.call_id)
        return _recorded(receipt, budget)

    def close_now(self, closing: Closing) -> Recorded | None:
        if self._open_here != {closing.call_id}:
            return None
        done = self._writer.commit_alone(lambda tx: self._close(tx, closing), closing=True)
        if done is None:
            return None
        if self._told is not None:
            self._told.closed(closing, done[0])
        self._open_here.discard(closing.call_id)
        return _recorded(done[1], done[0])

    async def close_call(self, closing: Closing) -> Recorded:
        self._open_here.discard(closing.call_id)
        if closing.call_id in self._abandoned:
            closing = replace(closing, opened=True)
        # The space that is kept for what has run is not for refusals: who may only ask would use it up by asking.
        if closing.opened:
            future = self._writer.commit_closing(lambda tx: self._close(tx, closing), stays=True)
        else:
            future = self._writer.commit(lambda tx: self._close(tx, closing))
        while not future.done():
            try:
                await future
            except asyncio.CancelledError:
                continue  # its task knows; the record is not cut short
        budget, receipt = future.result()
        self._abandoned.discard(closing.call_id)
        return _recorded(receipt, budget)

    async def find_call(self, call_id: str) -> StoredCall | None:
        """Whoever asks must check the principal before showing any of it."""
        return checked_call(self._read, call_id, self._writer.home.keys)

    async def budget(self, run_id: str) -> Ledger | None:
        return self._budget.read_ledger(self._writer, run_id)

    async def share(self, run: RunSpec) -> Share | None:
        return self._budget.read_share(self._writer, run)

    async def open_calls(self) -> Sequence[StoredCall]:
        return self._read.open_calls()

    async def find_intents(self, calls: Sequence[StoredCall]) -> Mapping[str, Intent]:
        return self._read.intents(calls)

    # ── acts and queries ──

    async def record_act(self, act: Act, *, at_unix_ms: int) -> Receipt:
        """For an act that changes no row of ours; one that does is recorded in the transaction of its change."""
        draft = act.draft()

        def work(tx: Transaction) -> int:
            return tx.append(draft, at_unix_ms=at_unix_ms)

        done = self._writer.commit_first(work) or await self._writer.commit(work)
        assert done[1] is not None, "an entry was appended"
        return done[1]

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

    def _open(self, tx: Transaction, opening: Opening) -> BudgetView:
        new = opening.run_looks_new
        spent = self._budget.spend_call(tx, opening.run, opening.call_id, opening.reserve, looks_new=new)
        if spent is None:
            raise Rejected(
                Reason.CAPABILITY_DENIED,
                f"Run {opening.run.run_id} belongs to another principal.",
                "Start a run of your own: leave run_id out.",
            )
        (sequence, budget, commitment), at = spent, opening.opened_unix_ms
        if opening.permission is not None:
            if self._approvals is None:
                raise StateError("Approvals are not kept here.")
            self._approvals.use(tx, opening.permission, at_unix_ms=at)
        said: dict[str, Json] = {"budget": budget.limits_json(), **_first(opening.run, commitment)}
        if budget.is_limited or not opening.run.quota.is_unlimited:
            said["reserved"] = opening.reserve.as_json()
        if opening.run.terms_sha256 is not None:
            from palyra.journal.run_terms import check_terms  # only for runs that were made by name

            check_terms(tx, opening.run)
            said["terms_sha256"] = opening.run.terms_sha256
        entry = _with(opening.entry, said, {"details": opening.details})
        index = tx.append(entry, at_unix_ms=at, sequence=sequence)
        details = tx.keep_blob(opening.details, at_unix_ms=at)
        owner = opening.owner
        row = (
            opening.call_id, opening.run.run_id, opening.tool, opening.principal, opening.input_sha256, "open", None,
            owner.boot_id, owner.pid, owner.start_ticks, details, None, index, None, at, None,
        )  # fmt: skip
        if not tx.execute(f"{_INSERT} ON CONFLICT (call_id) DO NOTHING", row).rowcount:
            raise DuplicateCall(opening.call_id)  # and all of the above is undone
        return budget

    def _close(self, tx: Transaction, closing: Closing) -> BudgetView:
        # Only here is it known for certain whether an intent came first and whether a row is kept.
        facts: dict[str, Json] = {"opened": closing.opened, "kept": closing.opened or closing.keep_call}
        if not closing.opened:
            kept = {"outcome": closing.outcome} if closing.keep_call else {}
            return self._refuse(tx, closing, _with(closing.entry, facts, kept))
        settled = self._budget.settle(tx, closing.run, closing.call_id, closing.spent, holds=closing.holds)
        sequence, spent, budget = settled
        # The details that are kept are the intent's, whatever this entry was drafted with.
        more = facts | {"spent": spent.as_json()}
        entry = _with(closing.entry, more, {"outcome": closing.outcome}, without="details")
        self._finish_open(tx, closing, tx.append(entry, at_unix_ms=closing.closed_unix_ms, sequence=sequence))
        return budget

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

    def _refuse(self, tx: Transaction, closing: Closing, entry: EntryDraft) -> BudgetView:
        at, run_id = closing.closed_unix_ms, closing.run.run_id
        if closing.keep_call and tx.execute("SELECT 1 FROM calls WHERE call_id = ?", (closing.call_id,)).fetchone():
            raise DuplicateCall(closing.call_id)
        # What somebody sends under another principal's run id is recorded, and costs that principal nothing.
        budget = BudgetView(calls_max=closing.run.calls_max)
        if (commitment := self._budget.ensure_run(tx, closing.run)) is not None:
            budget = self._budget.spend_attempt(tx, run_id)
            entry = _with(entry, {"budget": budget.limits_json(), **_first(closing.run, commitment)}, {})
        if not closing.keep_call:
            tx.append(entry, at_unix_ms=at)
            return budget
        index = tx.append(_with(entry, {}, {"details": closing.details}), at_unix_ms=at)
        details, outcome = (tx.keep_blob(data, at_unix_ms=at) for data in (closing.details, closing.outcome))
        tx.execute(
            _INSERT,
            (closing.call_id, run_id, closing.tool, closing.principal, closing.input_sha256, closing.status,
             closing.reason, None, None, None, details, outcome, None, index, at, at),
        )  # fmt: skip
        return budget


def checked_call(read: Lookup, call_id: str, keys: Keys) -> StoredCall | None:
    """A call with the outcome that was attested for it, or `StateError`: a retry must not be answered by a forger."""
    stored = read.call(call_id)
    if stored is None or stored.status == "open" or not stored.outcome:
        return stored
    view = read.view(stored.result_index)
    try:
        outcome = orjson.loads(stored.outcome)
        attested = outcome["attestation"]
        key = keys.of_entry(stored.result_index if stored.result_index is not None else -1).key
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


def _with(entry: EntryDraft, more: Mapping[str, Json], kept: Mapping[str, bytes], *, without: str = "") -> EntryDraft:
    """The entry with facts that only the store knows (the run's limits as its row has them: whoever edits that row
    contradicts its entries), and with a commitment to what is kept beside it."""
    commitments = [one for one in entry.commitments if one.field != without]
    bound = {one.field for one in commitments}
    commitments += [commit_value(f, kept[f], os.urandom(SALT_BYTES)) for f in kept if f not in bound]
    return EntryDraft(
        predicate_type=entry.predicate_type,
        subject=entry.subject,
        predicate={**entry.predicate, **more},
        run_id=entry.run_id,
        commitments=tuple(commitments),
        fixed=entry.fixed,
    )


def _first(run: RunSpec, commitment: str) -> dict[str, Json]:
    """What a run's first entry alone says of its row; where a day's runs share something, its day in the clear."""
    if not commitment:
        return {}
    day: dict[str, Json] = {} if run.quota.is_unlimited else {"run_began_unix_ms": run.created_unix_ms}
    return {"run_commitment": commitment, **day}


def _recorded(receipt: Receipt | None, budget: BudgetView) -> Recorded:
    assert receipt is not None, "an entry was appended"
    return Recorded(receipt=receipt, budget=budget)
