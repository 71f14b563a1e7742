"""Where a run stands when a call of it is assessed: its ledger, what it has done, and which policies are in use, all of
one moment and in one statement. Each by itself costs as much as the three together, before every call.

Not here: what they mean (budget, run_facts, versions), and what is judged again inside the transaction (budget/store).
"""

from __future__ import annotations

from palyra.budget.ledger import Ledger
from palyra.budget.store import LEDGER_COLUMNS, BudgetStore, ledger_of
from palyra.engine.ports import Clock, Standing
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import WINDOW_MS
from palyra.state.remembered import Remembered
from palyra.state.writer import Writer
from palyra.wiring.run_facts import COUNTED_FROM, COUNTS, Counting

_STANDING = f"""SELECT u.number, u.version, runs.principal, {COUNTS}, {LEDGER_COLUMNS}
                FROM policy_pointer p JOIN policy_uses u ON u.number = p.number
                     CROSS JOIN {COUNTED_FROM} LEFT JOIN runs ON runs.run_id = ?"""  # noqa: S608  # of our own words
_IN_USE = "SELECT u.number, u.version FROM policy_pointer p JOIN policy_uses u ON u.number = p.number"
_POLICIES = """SELECT u.number, u.version, runs.principal
               FROM policy_pointer p JOIN policy_uses u ON u.number = p.number LEFT JOIN runs ON runs.run_id = ?"""


class StandingStore:
    def __init__(self, writer: Writer, budget: BudgetStore, clock: Clock) -> None:
        self._writer = writer
        self._budget = budget
        self._clock = clock
        self._in_use = Remembered(writer)

    def read(self, owner: ProcessOwner, *, ends_with_call: bool = False, is_new: bool = False) -> Standing:
        if is_new:
            rows = self._in_use.rows(_IN_USE)
            if rows:
                number, version = rows[0]
                return Standing(budget=None, policy_is_read=True, policy=version, policy_number=number)
        if ends_with_call:
            rows = self._writer.rows(_POLICIES, (owner.run_id,))
            if rows and rows[0][2] is None:
                number, version, _ = rows[0]
                return Standing(budget=None, policy_is_read=True, policy=version, policy_number=number)
        counting = Counting(owner, self._clock.now_unix_ms() - WINDOW_MS)
        rows = self._writer.rows(_STANDING, (*counting.asked, owner.run_id))
        if not rows:  # no pointer: whoever looks for the policies finds out what is wrong
            return Standing(budget=self._budget.read_ledger(self._writer, owner.run_id))
        number, version, principal, *_ = row = rows[0]
        return Standing(
            budget=None if principal is None else self._ledger(owner.run_id, row[7:]),
            facts=counting.facts(self._writer, principal, row[3:7]),
            policy_is_read=True,
            policy=version,
            policy_number=number,
        )

    def _ledger(self, run_id: str, row: tuple[int | None, ...]) -> Ledger | None:
        """What calls under way hold back is asked for only where there are limits."""
        found = ledger_of(row)
        return found if found.most.is_unlimited else self._budget.read_ledger(self._writer, run_id)
