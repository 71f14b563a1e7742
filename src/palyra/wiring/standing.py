"""Where a run stands when a call of it is assessed: its ledger, what it has done, and which policies are in use, all of
one moment and in one statement. Each by itself costs as much as the three together, before every call.

Not here: what they mean (budget, run_facts, versions), and what is judged again inside the transaction (budget/store).
"""

from __future__ import annotations

from palyra.budget.ledger import Ledger
from palyra.budget.store import LEDGER_COLUMNS, BudgetStore, ledger_of
from palyra.engine.ports import Clock, Standing
from palyra.model.process import ProcessOwner
from palyra.state.writer import Writer
from palyra.wiring.run_facts import COUNTS, COUNTS_WIDTH, asked_of, facts_of

_IN_USE = "(SELECT {} FROM policy_pointer p JOIN policy_uses u ON u.number = p.number)"
_STANDING = f"""SELECT {_IN_USE.format("u.number")}, {_IN_USE.format("u.version")}, runs.principal, {COUNTS},
                       {LEDGER_COLUMNS}
                FROM (SELECT 1) AS asked LEFT JOIN runs ON runs.run_id = ?"""  # noqa: S608  # of our own words
_COUNTED = 3 + COUNTS_WIDTH


class StandingStore:
    def __init__(self, writer: Writer, budget: BudgetStore, clock: Clock) -> None:
        self._writer = writer
        self._budget = budget
        self._clock = clock

    def read(self, owner: ProcessOwner) -> Standing:
        counting = asked_of(owner, now_unix_ms=self._clock.now_unix_ms())
        (row,) = self._writer.rows(_STANDING, (*counting, owner.run_id))
        use, version, principal = row[:3]
        return Standing(
            budget=None if principal is None else self._ledger(owner.run_id, row[_COUNTED:]),
            facts=facts_of(row[3:_COUNTED], is_own=principal == owner.principal),
            policy_is_read=use is not None,  # else whoever looks for it finds out what is wrong
            policy=version,
        )

    def _ledger(self, run_id: str, row: tuple[int | None, ...]) -> Ledger | None:
        """What calls under way hold back is asked for only where there are limits."""
        found = ledger_of(row)
        return found if found.most.is_unlimited else self._budget.read_ledger(self._writer, run_id)
