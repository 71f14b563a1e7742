"""Where a run stands when a call of it is assessed: its ledger, what it has done, and which policies are in use, all of
one moment and in one statement. Each by itself costs as much as the three together, before every call.

Not here: what they mean (budget, run_facts, versions), and what is judged again inside the transaction (budget/store).
"""

from __future__ import annotations

from palyra.budget.ledger import Ledger
from palyra.budget.store import LEDGER_COLUMNS, BudgetStore, ledger_of
from palyra.engine.ports import Clock, Standing
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import MAX_COUNTED, NO_FACTS, WINDOW_MS
from palyra.state.remembered import Remembered
from palyra.state.writer import Writer
from palyra.wiring.known_runs import Known, KnownRuns
from palyra.wiring.run_facts import COUNTED_FROM, COUNTS, Counting

_STANDING = f"""SELECT u.number, u.version, runs.principal, {COUNTS}, {LEDGER_COLUMNS}
                FROM policy_pointer p JOIN policy_uses u ON u.number = p.number
                     CROSS JOIN {COUNTED_FROM} LEFT JOIN runs ON runs.run_id = ?"""  # noqa: S608  # of our own words
_IN_USE = "SELECT u.number, u.version FROM policy_pointer p JOIN policy_uses u ON u.number = p.number"
_POLICIES = """SELECT u.number, u.version, runs.principal
               FROM policy_pointer p JOIN policy_uses u ON u.number = p.number LEFT JOIN runs ON runs.run_id = ?"""


_WHEN = f"""SELECT opened_unix_ms FROM calls WHERE run_id = ? AND opened_unix_ms > ?
            ORDER BY opened_unix_ms DESC LIMIT {MAX_COUNTED}"""  # noqa: S608


class StandingStore:
    def __init__(self, writer: Writer, budget: BudgetStore, clock: Clock, known: KnownRuns | None = None) -> None:
        """`known` is told of commits by who makes them; without it everything is read each time."""
        self._writer = writer
        self._known = known
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
        since_unix_ms = self._clock.now_unix_ms() - WINDOW_MS
        known = None if self._known is None else self._known.read(owner, since_unix_ms)
        if known is not None:
            return known
        counting = Counting(owner, since_unix_ms)
        rows = self._writer.rows(_STANDING, (*counting.asked, owner.run_id))
        if not rows:  # no pointer: whoever looks for the policies finds out what is wrong
            return Standing(budget=self._budget.read_ledger(self._writer, owner.run_id))
        number, version, principal, calls, _, refused, _ = (row := rows[0])[:7]
        standing = Standing(
            budget=None if principal is None else self._ledger(owner.run_id, row[7:]),
            facts=counting.facts(self._writer, principal, row[3:7]),
            policy_is_read=True,
            policy=version,
            policy_number=number,
        )
        if principal in (None, owner.principal) and not refused:
            self._keep(standing, counting, calls)
        return standing

    def _keep(self, standing: Standing, counting: Counting, calls: int) -> None:
        """For the run's next call, where that can be told from what is committed meanwhile."""
        budget, facts, owner = standing.budget, standing.facts or NO_FACTS, counting.owner
        if self._known is None or (budget is not None and not budget.most.is_unlimited):
            return
        if self._known.is_worth(calls):
            since = counting.since_unix_ms
            times = [at for (at,) in self._writer.rows(_WHEN, (owner.run_id, since))] if calls else []
            known = Known(
                principal=owner.principal,
                standing=standing,
                labels=facts.labels,
                since_unix_ms=since,
                opened_unix_ms=times[::-1],
            )
            self._known.keep(owner.run_id, known)

    def _ledger(self, run_id: str, row: tuple[int | None, ...]) -> Ledger | None:
        """What calls under way hold back is asked for only where there are limits."""
        found = ledger_of(row)
        return found if found.most.is_unlimited else self._budget.read_ledger(self._writer, run_id)
