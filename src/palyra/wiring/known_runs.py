"""Where runs stand, known without asking: read once, and carried on from one commit of this process to the next.

A call that is alone commits twice, each time its own rows and nothing else, and the commit says what became of its
run: all that it changed of where the run stands. So the next call of the run need not read it back. The sign that
nobody else wrote is the count of commits in the database's moment (state/log_index): what is known holds at one moment,
and still holds, with what was told since, where no more commits were made than were told. Whatever else is committed
(by another process, for another purpose, for several calls at once) is one too many, and all of it is forgotten.

Only plain standings are kept: of a run's own principal, with no limits but its calls, with nothing refused in the last
minute. Not here: reading one (standing), what is judged again inside the transaction (budget/store).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TypeAlias

from palyra.budget.ledger import Ledger
from palyra.engine.ports import Standing
from palyra.model.budget import UNLIMITED, Allowance
from palyra.model.outcome import BudgetView
from palyra.model.process import ProcessOwner
from palyra.model.record import Closing, Opening
from palyra.model.run_facts import MAX_COUNTED, RunFacts, RunLabel
from palyra.state.writer import Writer
from palyra.values import dataclass

MAX_RUNS = 256
MAX_TOLD = 64
"""Between two questions: who never asks (calls that are runs of their own) is not listened to for ever."""
FEW_CALLS = 8
"""Of so many in the last minute the times are read at once; of more only where knowing them has paid before."""

_Told: TypeAlias = tuple[str, str, BudgetView, int | None, Allowance]
"""What one commit did to its run: the run, its principal, its budget, when a call was opened, the run's limits."""


@dataclass(slots=True, kw_only=True, eq=False)
class Known:
    """Of one run, as its own principal sees it; of one that nobody knows yet, as whoever asked."""

    principal: str
    standing: Standing
    """As it was read; its budget and its count of calls are older than what follows."""
    labels: frozenset[RunLabel]
    since_unix_ms: int
    """Calls before this are not counted any more."""
    opened_unix_ms: list[int]
    """When its last calls were opened, in order; no more than anybody is told of."""
    budget: BudgetView | None = None
    """As the last commit left it."""

    def now(self, since_unix_ms: int) -> Standing | None:
        """None where the clock was put back: what was dropped would count again."""
        if since_unix_ms < self.since_unix_ms:
            return None
        self.since_unix_ms, times, before = since_unix_ms, self.opened_unix_ms, self.standing
        if times and times[0] <= since_unix_ms:
            del times[: bisect_right(times, since_unix_ms)]
        return Standing(
            budget=before.budget if self.budget is None else ledger_of_view(self.budget),
            facts=RunFacts(labels=self.labels, calls_last_minute=len(times)),
            policy_is_read=True,
            policy=before.policy,
            policy_number=before.policy_number,
        )

    def count(self, at_unix_ms: int) -> None:
        insort(self.opened_unix_ms, at_unix_ms)
        del self.opened_unix_ms[:-MAX_COUNTED]


class KnownRuns:
    """Used on one thread, as the writer is. Told by the journal's store of commits that held one call alone."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._is_asked_again = False
        self._moment: object = None
        self._known: dict[str, Known] = {}
        """By run: what one principal changes, the others see. As of the moment, without what was told since."""
        self._told: list[_Told] = []
        """Since then: kept as it came, because an answer waits for it."""
        self._answers = 0
        """Given since times were last read: what reading them again may cost."""

    def read(self, owner: ProcessOwner, since_unix_ms: int) -> Standing | None:
        """What holds now, if it is known. Whatever is read after this may be kept: it is no older."""
        if not self._is_asked_again:  # most commands ask once
            self._is_asked_again = True
            return None
        moment = self._writer.moment()
        if moment is None or not self._follow(moment):
            self._moment = moment
            self._known.clear()
            self._told.clear()
            return None
        known = self._known.get(owner.run_id)
        if known is None or known.principal != owner.principal:
            return None
        self._answers += 1
        return known.now(since_unix_ms)

    def is_worth(self, calls: int) -> bool:
        """Whether to read when that many calls were opened, to keep it."""
        if self._moment is None or calls > FEW_CALLS + self._answers:
            return False
        self._answers = 0
        return True

    def keep(self, run_id: str, known: Known) -> None:
        """Right after `read` found nothing."""
        if len(self._known) >= MAX_RUNS:
            self._known.clear()
        self._known[run_id] = known

    # ── what was committed ──

    def opened(self, opening: Opening, budget: BudgetView) -> None:
        if len(self._told) < MAX_TOLD:
            run = opening.run
            self._told.append((run.run_id, opening.principal, budget, opening.opened_unix_ms, run.most))

    def closed(self, closing: Closing, budget: BudgetView) -> None:
        # A refused one is counted among others: as if nothing had been told.
        if len(self._told) < MAX_TOLD and closing.status != "refused":
            self._told.append((closing.run.run_id, closing.principal, budget, None, UNLIMITED))

    def _follow(self, moment: object) -> bool:
        if not self._told:
            return moment == self._moment
        from palyra.state.log_index import commits_between  # for those alone who call again and again

        if commits_between(self._moment, moment) != len(self._told):
            return False
        for run_id, principal, budget, opened_unix_ms, most in self._told:
            known = self._known.get(run_id)
            if known is None:
                continue
            if known.principal != principal or not most.is_unlimited:  # perhaps since then only
                del self._known[run_id]
                continue
            known.budget = budget
            if opened_unix_ms is not None:
                known.count(opened_unix_ms)
        self._told.clear()
        self._moment = moment
        return True


def ledger_of_view(view: BudgetView) -> Ledger:
    """Of a run with no limits but its calls."""
    return Ledger(
        calls_used=view.calls_used,
        calls_max=view.calls_max,
        attempts_used=view.attempts_used,
        attempts_max=view.attempts_max,
    )
