"""A run's labels and its counters, read from the database. Labels are rows of their own, set once, in one transaction
with the entry that tells of them, because who can write the database could take one off; the counters are
counted over the calls' rows, so they are exact between processes and survive a restart without being kept.

Rules: everything is by run and principal: what somebody sends under another's run id marks and counts nothing there.
What was not refused is the run's own principal's: nobody else's calls are opened in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palyra.canon import Json
from palyra.engine.ports import Clock
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import MAX_COUNTED, WINDOW_MS, RunFacts, RunLabel
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

_SPARE = 64
"""Counted beyond what anybody is told: refused calls are taken off again, and there are seldom more."""
_LABELS = tuple(RunLabel)
_MARKS = " ".join(f"WHEN '{label}' THEN {1 << at}" for at, label in enumerate(_LABELS))
_WINDOW = "FROM calls WHERE run_id = ? AND opened_unix_ms > ?"
COUNTS = f"""(SELECT count(*) FROM (SELECT 1 {_WINDOW} LIMIT {MAX_COUNTED + _SPARE}) AS counted),
             (SELECT coalesce(sum(CASE label {_MARKS} ELSE 0 END), 0) FROM run_labels
              WHERE run_id = ? AND principal = ?),
             refused, denials"""  # noqa: S608  # of our own words, here and below
COUNTED_FROM = f"""(SELECT count(*) AS refused, coalesce(sum(CASE WHEN principal = ? THEN 1 ELSE 0 END), 0) AS denials
                    {_WINDOW} AND status = 'refused') AS refusals"""
"""Counted from indexes alone and in one statement, because it is asked before every decision; no further than anybody
is told, because a busy run makes tens of thousands of calls a minute."""
_FACTS = f"SELECT (SELECT principal FROM runs WHERE run_id = ?), {COUNTS} FROM {COUNTED_FROM}"  # noqa: S608
_NONE: frozenset[RunLabel] = frozenset()


@dataclass(frozen=True, slots=True)
class Counting:
    """One question about a run."""

    owner: ProcessOwner
    since_unix_ms: int

    @property
    def asked(self) -> tuple[str | int, ...]:
        """For `COUNTS` and `COUNTED_FROM`, in this order."""
        run_id, principal, since = self.owner.run_id, self.owner.principal, self.since_unix_ms
        return run_id, since, run_id, principal, principal, run_id, since

    def facts(self, writer: Writer, owner_of_run: str | None, counts: tuple[Any, ...]) -> RunFacts:
        calls, marks, refused, denials = counts
        if refused > _SPARE and calls == MAX_COUNTED + _SPARE:
            ((calls,),) = writer.rows(f"SELECT count(*) {_WINDOW}", (self.owner.run_id, self.since_unix_ms))
        made = calls - refused if owner_of_run == self.owner.principal else 0
        return RunFacts(
            labels=frozenset(label for at, label in enumerate(_LABELS) if marks >> at & 1) if marks else _NONE,
            calls_last_minute=min(made + denials, MAX_COUNTED),
            denials_last_minute=min(denials, MAX_COUNTED),
        )


def _insert(tx: Transaction, owner: ProcessOwner, label: RunLabel, call_id: str, at_unix_ms: int) -> bool:
    """False where the run has it already."""
    sql = "INSERT INTO run_labels VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return tx.execute(sql, (owner.run_id, owner.principal, label.value, call_id, at_unix_ms)).rowcount == 1


def _labelled(owner: ProcessOwner, call_id: str, labels: list[Json]) -> Act:
    """Of no run's sequence: the run's own row may be written only by the intent of this very call."""
    details: dict[str, Json] = {"principal": owner.principal, "labels": sorted(labels, key=str), "call_id": call_id}
    return Act(kind=ActKind.RUN_LABELLED, actor=PALYRA, subject=f"run/{owner.run_id}", details=details)


class RunFactsStore:
    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    def read(self, owner: ProcessOwner) -> RunFacts:
        counting = Counting(owner, self._clock.now_unix_ms() - WINDOW_MS)
        (row,) = self._writer.rows(_FACTS, (owner.run_id, *counting.asked))
        return counting.facts(self._writer, row[0], row[1:])

    def count_calls(self, owner: ProcessOwner, *, since_unix_ms: int) -> int:
        ((count,),) = self._writer.rows(f"SELECT count(*) {_WINDOW}", (owner.run_id, since_unix_ms))
        return int(count)

    async def mark(self, owner: ProcessOwner, call_id: str, labels: Iterable[RunLabel]) -> None:
        wanted, at = tuple(labels), self._clock.now_unix_ms()

        def work(tx: Transaction) -> None:
            new: list[Json] = [label.value for label in wanted if _insert(tx, owner, label, call_id, at)]
            if new:
                record_act(tx, _labelled(owner, call_id, new), at_unix_ms=at)

        await self._writer.commit(work)
