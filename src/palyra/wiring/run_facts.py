"""A run's labels and its counters, read from the database. Labels are rows of their own, set once; the counters are
counted over the calls' rows, so they are exact between processes and survive a restart without being kept.

Rules: everything is by run and principal: what somebody sends under another's run id marks and counts nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from palyra.engine.ports import Clock
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import MAX_COUNTED, WINDOW_MS, RunFacts, RunLabel
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

_REFUSED = "SELECT count(*) FROM calls WHERE run_id = ? AND opened_unix_ms > ? AND status = 'refused'"
_LABELS = tuple(RunLabel)
_LABEL = "(SELECT count(*) FROM run_labels WHERE run_id = ? AND principal = ? AND label = '{}')"
COUNTS = f"""(SELECT count(*) FROM (SELECT 1 FROM calls WHERE run_id = ? AND opened_unix_ms > ?
                                   LIMIT {MAX_COUNTED} + ({_REFUSED})) AS counted),
             ({_REFUSED}), ({_REFUSED} AND principal = ?),
             {", ".join(map(_LABEL.format, _LABELS))}"""  # noqa: S608  # of our own words
"""Counted from indexes alone and in one statement, because it is asked before every decision. No further than anybody
is told: a busy run makes tens of thousands of calls a minute, and the refused ones among them are taken off again."""
COUNTS_WIDTH = 3 + len(_LABELS)
_FACTS = f"SELECT (SELECT principal FROM runs WHERE run_id = ?), {COUNTS}"  # noqa: S608
_NONE: frozenset[RunLabel] = frozenset()


class RunFactsStore:
    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    def read(self, owner: ProcessOwner) -> RunFacts:
        counting = asked_of(owner, now_unix_ms=self._clock.now_unix_ms())
        ((owner_of_run, *counts),) = self._writer.rows(_FACTS, (owner.run_id, *counting))
        return facts_of(counts, is_own=owner_of_run == owner.principal)

    async def mark(self, owner: ProcessOwner, call_id: str, labels: Iterable[RunLabel]) -> None:
        wanted, at = tuple(labels), self._clock.now_unix_ms()

        def work(tx: Transaction) -> None:
            for label in wanted:
                tx.execute(
                    "INSERT INTO run_labels VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (owner.run_id, owner.principal, label.value, call_id, at),
                )

        await self._writer.commit(work)


def asked_of(owner: ProcessOwner, *, now_unix_ms: int) -> tuple[str | int, ...]:
    """What `COUNTS` is asked with."""
    window = (owner.run_id, now_unix_ms - WINDOW_MS)
    return (*window * 4, owner.principal, *(owner.run_id, owner.principal) * len(_LABELS))


def facts_of(counts: Sequence[int], *, is_own: bool) -> RunFacts:
    """`is_own`: the run is this principal's. What was not refused is that one's: nobody else's calls are opened."""
    calls, refused, denials, *set_labels = counts
    made = calls - refused if is_own else 0
    return RunFacts(
        labels=frozenset(compress(_LABELS, set_labels)) if any(set_labels) else _NONE,
        calls_last_minute=min(made + denials, MAX_COUNTED),
        denials_last_minute=min(denials, MAX_COUNTED),
    )
