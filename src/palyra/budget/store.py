"""The ledger's rows, read and spent inside the transaction of the entry they belong to.

Rules: exact under any number of callers and processes, because the row is read, judged and written under the writer's
lock; what a call may use is reserved with its intent and settled with its result; a refusal is always counted, also
past its limit, so that a flood shows; a run belongs to the principal that started it. A run without limits but its
calls reserves nothing, and costs no statement more.

Not here: the rules of spending (budget/ledger), transactions (state/writer).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palyra.budget import ledger
from palyra.errors import StateError
from palyra.journal.commitments import SALT_BYTES, run_commitment
from palyra.model.budget import NOTHING, RESOURCES, UNLIMITED, Allowance, Spending
from palyra.model.outcome import BudgetView, Usage
from palyra.model.record import RunSpec
from palyra.state.database import Rows
from palyra.state.transaction import Transaction

DAY_MS = 24 * 3600 * 1000

_USED = tuple(f"{name}_used" for name in RESOURCES)
_MOST = tuple(f"{name}_max" for name in RESOURCES)
_NO_LIMITS = [None] * len(RESOURCES)
_NAMES = ("calls_used", "calls_max", "attempts_used", "attempts_max", *_USED, *_MOST)
LEDGER_COLUMNS = ", ".join(_NAMES)
"""Of a row of `runs`, for `ledger_of`."""
_SELECT = f"SELECT {LEDGER_COLUMNS} FROM runs WHERE run_id = ?"  # noqa: S608  # column names of our own, here and below
_STORED = (
    *("principal", "workspace", "calls_max", "attempts_max", "created_unix_ms", "salt"),
    *(*_MOST, "calls_used", "next_sequence", "attempts_used"),
)
# A row is stored together with an entry that states its limits. One that has none was put there by somebody else, to
# have the run begin with limits of theirs, which every entry would then confirm: it counts for nothing.
_INSERT = f"""INSERT INTO runs (run_id, {", ".join(_STORED)}) VALUES ({", ".join("?" * 14)}, 0)
              ON CONFLICT (run_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _STORED)},
                  {", ".join(f"{name} = 0" for name in _USED)} WHERE runs.next_sequence = 0"""  # noqa: S608
_USE = ", ".join(f"{name} = {name} + ?" for name in _USED)
_SETTLE = f"""UPDATE runs SET {_USE}, next_sequence = next_sequence + 1
              WHERE run_id = ? RETURNING next_sequence - 1, {LEDGER_COLUMNS}"""  # noqa: S608
_SETTLE_LATE = f"UPDATE runs SET {_USE} WHERE run_id = ?"  # noqa: S608
_ENDED = """SELECT 1 FROM run_terms t WHERE t.run_id = runs.run_id AND t.principal = runs.principal
            AND t.ended_unix_ms IS NOT NULL"""
_HAS_ENDED = f"SELECT 1 FROM runs WHERE run_id = ? AND principal = ? AND EXISTS ({_ENDED})"  # noqa: S608
_SPEND = f"""UPDATE runs SET calls_used = calls_used + 1, next_sequence = next_sequence + 1
             WHERE run_id = ? AND principal = ? AND next_sequence > 0 AND NOT EXISTS ({_ENDED})
             RETURNING next_sequence - 1, {LEDGER_COLUMNS}"""  # noqa: S608
_ATTEMPT = f"UPDATE runs SET attempts_used = attempts_used + 1 WHERE run_id = ? RETURNING {LEDGER_COLUMNS}"  # noqa: S608
_SUMS = ", ".join(f"coalesce(sum({name}), 0)" for name in RESOURCES)
_HELD = f"SELECT {_SUMS} FROM reservations WHERE run_id = ?"  # noqa: S608
_RELEASE = f"DELETE FROM reservations WHERE call_id = ? RETURNING {', '.join(RESOURCES)}"  # noqa: S608
_SHARED = f"""SELECT coalesce(sum(calls_used), 0), {", ".join(f"coalesce(sum({name}), 0)" for name in _USED)}
              FROM runs WHERE principal = ? AND created_unix_ms >= ? AND created_unix_ms < ?"""  # noqa: S608
_SHARED_HELD = f"""SELECT {_SUMS} FROM reservations JOIN runs USING (run_id)
                   WHERE principal = ? AND created_unix_ms >= ? AND created_unix_ms < ?"""  # noqa: S608


class BudgetStore:
    """What the journal's store needs of the budget; it holds nothing itself."""

    def ensure_run(self, tx: Transaction, run: RunSpec) -> str | None:
        """Store the run if it is new; what is stored stays, once it has an entry. The commitment that its first entry
        tells, empty where it has one; None when it is another principal's."""
        known = tx.rows("SELECT principal FROM runs WHERE run_id = ? AND next_sequence > 0", (run.run_id,))
        if known:
            return "" if known == [(run.principal,)] else None
        return _store(tx, run, calls=0)

    def spend_call(
        self, tx: Transaction, run: RunSpec, call_id: str, reserve: Spending = NOTHING, *, looks_new: bool = False
    ) -> tuple[int, BudgetView, str] | None:
        """With this call, and its entry's number in the run, and the commitment that its entry tells if it is the run's
        first; None when the run is another principal's.
        Rejected when the run has ended; BUDGET_SPENT when there is none left, or not enough of what it may use.
        `looks_new`: the run was not known a moment ago, so it is tried to store it with this call."""
        # Counted at once and judged then: a refusal undoes it.
        found, commitment = None if looks_new else _spend(tx, run), ""
        if found is None and (commitment := _store(tx, run, calls=1)):
            found = (0, 1, run.calls_max, 0, run.attempts_max, *NOTHING.amounts, *run.most.amounts)
        found = found or _spend(tx, run)
        if found is None:
            _check_goes_on(tx, run)
            return None
        sequence, *row = found
        ledger.check_call(ledger_of((row[0] - 1, *row[1:])))
        if _is_limited(row) or not run.quota.is_unlimited:
            self._reserve(tx, run, call_id, reserve)
        return sequence, _view(row), commitment

    def _reserve(self, tx: Transaction, run: RunSpec, call_id: str, reserve: Spending) -> None:
        account = self.read_ledger(tx, run.run_id)
        if account is not None:
            ledger.check_reserve(account, reserve)
        share = self.read_share(tx, run)
        if share is not None:
            ledger.check_share_calls(replace(share, calls_used=share.calls_used - 1))  # this one is counted already
            ledger.check_reserve(share, reserve)
        tx.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?)", (call_id, run.run_id, *reserve.amounts))

    def settle(
        self, tx: Transaction, run: RunSpec, call_id: str, spent: Spending | None, *, holds: bool = False
    ) -> tuple[int, Spending, BudgetView]:
        """Count what was used and give back what was held; nobody looks for it where nothing can have been. The entry's
        number in the run comes with it.

        `spent` None: what was held counts as used. `holds`: what goes on keeps it.
        """
        if spent is None:
            held = tx.rows(_RELEASE, (call_id,))
            spent, holds = _spending(held[0]) if held else NOTHING, True
        rows = tx.rows(_SETTLE, (*spent.amounts, run.run_id))
        if not rows:
            raise _unknown(run.run_id)
        sequence, *row = rows[0]
        if not holds and (_is_limited(row) or not run.quota.is_unlimited):
            tx.execute(_RELEASE, (call_id,))
        return sequence, spent, _view(row)

    def settle_process(self, tx: Transaction, run_id: str, call_id: str, usage: Usage | None) -> Spending:
        """At the end of what outlived its call; what nobody knows counts as all that was held for it."""
        rows = tx.rows(_RELEASE, (call_id,))
        held = _spending(rows[0]) if rows else NOTHING
        spent = held
        if usage is not None:
            cpu_us = held.cpu_us if usage.cpu_us is None else usage.cpu_us
            spent = Spending(wall_us=usage.wall_us, cpu_us=cpu_us, output_bytes=usage.output_bytes)
        tx.execute(_SETTLE_LATE, (*spent.amounts, run_id))
        return spent

    def spend_attempt(self, tx: Transaction, run_id: str) -> BudgetView:
        """Count a refusal."""
        rows = tx.rows(_ATTEMPT, (run_id,))
        if not rows:
            raise _unknown(run_id)
        return _view(rows[0])

    def read_ledger(self, source: Rows, run_id: str) -> ledger.Ledger | None:
        """Of a run that is known; with what calls under way hold, where it has limits."""
        rows = source.rows(_SELECT, (run_id,))
        if not rows:
            return None
        found = ledger_of(rows[0])
        if found.most.is_unlimited:
            return found
        return ledger_of(rows[0], held=_spending(source.rows(_HELD, (run_id,))[0]))

    def read_share(self, source: Rows, run: RunSpec) -> ledger.Share | None:
        """What the runs of this principal's day have used together; None where they share nothing."""
        if run.quota.is_unlimited:
            return None
        rows = source.rows("SELECT created_unix_ms FROM runs WHERE run_id = ?", (run.run_id,))
        first = (rows[0][0] if rows else run.created_unix_ms) // DAY_MS * DAY_MS
        day = (run.principal, first, first + DAY_MS)
        calls, *used = source.rows(_SHARED, day)[0]
        return ledger.Share(
            principal=run.principal,
            calls_used=calls,
            calls_max=run.quota.calls,
            used=_spending(used),
            reserved=_spending(source.rows(_SHARED_HELD, day)[0]),
            most=run.quota.most,
        )


def _store(tx: Transaction, run: RunSpec, *, calls: int) -> str:
    """With its first calls, each of which has an entry. What the first is to tell of the row; empty when it is there
    already, whoever's it is."""
    values = (run.run_id, run.principal, run.workspace, run.calls_max, run.attempts_max, run.created_unix_ms)
    salt = os.urandom(SALT_BYTES)
    if tx.execute(_INSERT, (*values, salt, *run.most.amounts, calls, calls)).rowcount != 1:
        return ""
    return run_commitment(run.workspace, run.created_unix_ms, salt)


def _spend(tx: Transaction, run: RunSpec) -> Sequence[Any] | None:
    rows = tx.rows(_SPEND, _key(run))
    return rows[0] if rows else None


def _check_goes_on(tx: Transaction, run: RunSpec) -> None:
    if tx.rows(_HAS_ENDED, _key(run)):
        from palyra.journal.run_terms import run_has_ended  # only for runs that were ended

        raise run_has_ended()


def _key(run: RunSpec) -> tuple[str, str]:
    return run.run_id, run.principal


def _unknown(run_id: str) -> StateError:
    return StateError(f"Run {run_id} is not known.")


def _view(row: Sequence[Any]) -> BudgetView:
    return BudgetView(**dict(zip(_NAMES, row, strict=True)))


def _is_limited(row: Sequence[Any]) -> bool:
    """Beside its calls."""
    return [*row[-len(RESOURCES) :]] != _NO_LIMITS


def ledger_of(row: Sequence[Any], *, held: Spending = NOTHING) -> ledger.Ledger:
    """`held` is what calls under way may still use."""
    calls_used, calls_max, attempts_used, attempts_max, *amounts = row
    used, most = amounts[: len(RESOURCES)], amounts[len(RESOURCES) :]
    limited = most != _NO_LIMITS
    return ledger.Ledger(
        calls_used=calls_used,
        calls_max=calls_max,
        attempts_used=attempts_used,
        attempts_max=attempts_max,
        used=_spending(used) if limited else NOTHING,  # what has no limit need not be counted to decide
        reserved=held,
        most=Allowance(**dict(zip(RESOURCES, most, strict=True))) if limited else UNLIMITED,
    )


def _spending(amounts: Sequence[int]) -> Spending:
    return Spending(**dict(zip(RESOURCES, amounts, strict=True)))
