"""Where runs stand, known without asking: read once, and carried on from one commit of this process to the next.

A call that is alone commits twice, each time its own rows and nothing else, and the commit says what became of its
run: all that it changed of where the run stands. So the next call of the run need not read it back. The sign that
nobody else wrote is the database's moment and the count of commits in it (state/log_index): what is known holds at one
moment, and at the one after a single commit that was told here. Whatever else is committed (by another process, for
another purpose, for several calls at once) makes a moment that does not follow, and all that was known is forgotten.

Only plain standings are kept: of a run's own principal, with no limits but its calls, with nothing refused in the last
minute. Not here: reading one (standing), what is judged again inside the transaction (budget/store).
"""

from __future__ import annotations

from bisect import bisect_right, insort

from palyra.budget.ledger import Ledger
from palyra.engine.ports import Standing
from palyra.model.outcome import BudgetView, Status
from palyra.model.process import ProcessOwner
from palyra.model.record import Closing, Opening
from palyra.model.run_facts import MAX_COUNTED, RunFacts, RunLabel
from palyra.state.log_index import is_one_commit_later
from palyra.state.writer import Writer
from palyra.values import dataclass

MAX_RUNS = 256
FEW_CALLS = 8
"""Of so many in the last minute the times are read at once; of more only where knowing them has paid before."""


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
        """By run: what one principal changes, the others see."""
        self._answers = 0
        """Given since times were last read: what reading them again may cost."""

    def read(self, owner: ProcessOwner, since_unix_ms: int) -> Standing | None:
        """What holds now, if it is known. Whatever is read after this may be kept: it is no older."""
        if not self._is_asked_again:  # most commands ask once
            self._is_asked_again = True
            return None
        moment = self._writer.moment()
        if moment is None or moment != self._moment:
            self._moment = moment
            self._known.clear()
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
        known = self._follow(opening.run.run_id, opening.principal, budget)
        if known is not None:
            known.count(opening.opened_unix_ms)
            if not opening.run.most.is_unlimited:  # it may have been stored just now
                del self._known[opening.run.run_id]

    def closed(self, closing: Closing, budget: BudgetView) -> None:
        if closing.status != Status.REFUSED:  # that one is counted among others
            self._follow(closing.run.run_id, closing.principal, budget)

    def _follow(self, run_id: str, principal: str, budget: BudgetView) -> Known | None:
        if self._moment is None:
            return None
        moment = self._writer.moment()
        if not is_one_commit_later(self._moment, moment):
            return None  # and the next one who asks finds that it is another moment
        self._moment = moment
        known = self._known.get(run_id)
        if known is None:
            return None
        if known.principal != principal:
            del self._known[run_id]
            return None
        known.budget = budget
        return known


def ledger_of_view(view: BudgetView) -> Ledger:
    """Of a run with no limits but its calls."""
    return Ledger(
        calls_used=view.calls_used,
        calls_max=view.calls_max,
        attempts_used=view.attempts_used,
        attempts_max=view.attempts_max,
    )
