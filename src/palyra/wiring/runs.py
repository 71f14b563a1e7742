"""Runs for operators: which there are, what they have used, and more of it. Who can open a home is its operator.

An extension and its entry, `run.extended`, are one transaction; the entry states the limits as they then are, so that
a row which was edited instead is found by `palyra journal verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from palyra.budget.ledger import Ledger, extend
from palyra.budget.store import BudgetStore
from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.journal.acts import Act, ActKind, record_act
from palyra.model.budget import NOTHING, RESOURCES, Spending
from palyra.model.outcome import BUDGET_NAMES, BudgetView
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

LAST = "\uffff"
"""Past every id, for a list that begins with the newest."""
_NAMES = ("run_id", "principal", "workspace", "created_unix_ms", *BUDGET_NAMES)
_ENDED = "SELECT t.ended_unix_ms FROM run_terms t WHERE t.run_id = runs.run_id AND t.principal = runs.principal"
_SELECT = f"SELECT ({_ENDED}), {', '.join(_NAMES)} FROM runs "  # noqa: S608  # column names of our own, here and below
_LIMITS = ("calls_max", "attempts_max", *(f"{name}_max" for name in RESOURCES))
_BEGUN = "SELECT 1 FROM runs WHERE run_id = ? AND next_sequence > 0"
_UPDATE = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _LIMITS)} WHERE run_id = ?"  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    run_id: str
    principal: str
    workspace: str
    created_unix_ms: int
    budget: BudgetView
    reserved: Spending = NOTHING
    """By running calls."""
    ended_unix_ms: int | None = None
    """It takes no more calls."""

    def as_json(self) -> dict[str, Json]:
        return {
            "run_id": self.run_id,
            "principal": self.principal,
            "workspace": self.workspace,
            "created_at_unix_ms": self.created_unix_ms,
            "ended_at_unix_ms": self.ended_unix_ms,
            "budget": self.budget.as_json(),
            "reserved": self.reserved.as_json(),
        }


class RunDesk:
    def __init__(self, writer: Writer, *, now_unix_ms: Callable[[], int]) -> None:
        self._writer = writer
        self._now = now_unix_ms
        self._budget = BudgetStore()

    def list(self, *, before: str = LAST, count: int = 50) -> tuple[RunView, ...]:
        """The newest first."""
        sql = f"{_SELECT}WHERE run_id < ? ORDER BY run_id DESC LIMIT ?"
        return tuple(_view(row) for row in self._writer.rows(sql, (before, count)))

    def find(self, run_id: str) -> RunView | None:
        rows = self._writer.rows(f"{_SELECT}WHERE run_id = ?", (run_id,))
        ledger = self._budget.read_ledger(self._writer, run_id)
        return replace(_view(rows[0]), reserved=ledger.reserved) if rows and ledger is not None else None

    async def extend(
        self, run_id: str, *, by: str, calls: int = 0, attempts: int = 0, more: Spending = NOTHING
    ) -> RunView:
        """`Rejected` for an agent, an unknown run, or a budget that has no limit."""
        if not by.startswith("user:"):
            raise Rejected(
                Reason.CAPABILITY_DENIED, "An agent can never extend a budget.", "Do it as a person: --as user:NAME."
            )

        def work(tx: Transaction) -> None:
            # A row without an entry is not a run's: an extension would make it one, with whatever limits stand there.
            before = self._budget.read_ledger(tx, run_id) if tx.rows(_BEGUN, (run_id,)) else None
            if before is None:
                raise Rejected(Reason.BAD_ARGUMENTS, f"There is no run {run_id[:40]!r}.", "palyra runs list")
            self._write(tx, run_id, extend(before, calls=calls, attempts=attempts, more=more), by=by)

        await self._writer.commit(work)
        found = self.find(run_id)
        assert found is not None, "it was just written"
        return found

    def _write(self, tx: Transaction, run_id: str, after: Ledger, *, by: str) -> None:
        limits = dict(zip(_LIMITS, (after.calls_max, after.attempts_max, *after.most.amounts), strict=True))
        tx.execute(_UPDATE, (*limits.values(), run_id))
        extended = {"budget": limits}
        act = Act(kind=ActKind.RUN_EXTENDED, actor=by, subject=f"run/{run_id}", details=extended, run_id=run_id)
        record_act(tx, act, at_unix_ms=self._now())


def _view(row: tuple[Any, ...]) -> RunView:
    ended, run_id, principal, workspace, created, *budget = row
    return RunView(
        run_id=run_id,
        principal=principal,
        workspace=workspace,
        created_unix_ms=created,
        ended_unix_ms=ended,
        budget=BudgetView(**dict(zip(BUDGET_NAMES, budget, strict=True))),
    )
