"""The ledger's rows, read and spent inside the transaction of the entry they belong to.

Rules: exact under any number of callers and processes, because the row is read, judged and written under the writer's
lock; a refusal is always counted, also past its limit, so that a flood shows; a run belongs to the principal that
started it. Not here: the rules of spending (budget/ledger), transactions (state/writer).
"""

from __future__ import annotations

from typing import Any, Protocol

from palyra.budget import ledger
from palyra.errors import StateError
from palyra.model.record import RunSpec
from palyra.state.transaction import Transaction


class Rows(Protocol):
    """A transaction under way, or the writer for what is committed."""

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]: ...


class BudgetStore:
    """What the journal's store needs of the budget; it holds nothing itself."""

    def ensure_run(self, tx: Transaction, run: RunSpec) -> bool:
        """Store the run if it is new; what is stored stays. False when it is another principal's."""
        known = tx.rows("SELECT principal FROM runs WHERE run_id = ?", (run.run_id,))
        if known:
            return known == [(run.principal,)]
        tx.execute(
            """INSERT INTO runs (run_id, principal, workspace, calls_used, calls_max, attempts_used, attempts_max,
                                 created_unix_ms) VALUES (?, ?, ?, 0, ?, 0, ?, ?)""",
            (run.run_id, run.principal, run.workspace, run.calls_max, run.attempts_max, run.created_unix_ms),
        )
        return True

    def spend_call(self, tx: Transaction, run_id: str) -> tuple[int, int]:
        """(used, max) with this call; Rejected(BUDGET_SPENT) when there is none left."""
        row = self.read_ledger(tx, run_id)
        if row is None:
            raise StateError(f"Run {run_id} is not known.")
        before = ledger.Ledger(calls_used=row[0], calls_max=row[1], attempts_used=row[2], attempts_max=row[3])
        after = ledger.spend_call(before)
        tx.execute("UPDATE runs SET calls_used = ? WHERE run_id = ?", (after.calls_used, run_id))
        return after.calls_used, after.calls_max

    def spend_attempt(self, tx: Transaction, run_id: str) -> tuple[int, int]:
        """Count a refusal. Returns the calls used and their maximum."""
        sql = "UPDATE runs SET attempts_used = attempts_used + 1 WHERE run_id = ? RETURNING calls_used, calls_max"
        rows = tx.rows(sql, (run_id,))
        if not rows:
            raise StateError(f"Run {run_id} is not known.")
        return rows[0][0], rows[0][1]

    def read_ledger(self, source: Rows, run_id: str) -> tuple[int, int, int, int] | None:
        """(calls used, calls max, attempts used, attempts max) of a run that is known."""
        sql = "SELECT calls_used, calls_max, attempts_used, attempts_max FROM runs WHERE run_id = ?"
        rows = source.rows(sql, (run_id,))
        return (rows[0][0], rows[0][1], rows[0][2], rows[0][3]) if rows else None
