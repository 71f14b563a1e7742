"""A run's labels and its counters, read from the database. Labels are rows of their own, set once; the counters are
counted over the calls' rows, so they are exact between processes and survive a restart without being kept.

Rules: everything is by run and principal: what somebody sends under another's run id marks and counts nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable

from palyra.engine.ports import Clock
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import MAX_COUNTED, WINDOW_MS, RunFacts, RunLabel
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

_COUNT = """SELECT count(*), count(*) FILTER (WHERE status = 'refused') FROM (
                SELECT status FROM calls WHERE run_id = ? AND opened_unix_ms > ? AND principal = ? LIMIT ?) AS recent"""


_LABELS = frozenset(RunLabel)
_NONE: frozenset[RunLabel] = frozenset()


class RunFactsStore:
    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    def read(self, owner: ProcessOwner) -> RunFacts:
        run_id, principal = owner.run_id, owner.principal
        labels = self._writer.rows(
            "SELECT label FROM run_labels WHERE run_id = ? AND principal = ?", (run_id, principal)
        )
        since = self._clock.now_unix_ms() - WINDOW_MS
        ((calls, denials),) = self._writer.rows(_COUNT, (run_id, since, principal, MAX_COUNTED))
        return RunFacts(
            labels=frozenset(RunLabel(name) for (name,) in labels if name in _LABELS) if labels else _NONE,
            calls_last_minute=calls,
            denials_last_minute=denials,
        )

    async def mark(self, owner: ProcessOwner, call_id: str, labels: Iterable[RunLabel]) -> None:
        wanted, at = tuple(labels), self._clock.now_unix_ms()

        def work(tx: Transaction) -> None:
            for label in wanted:
                tx.execute(
                    "INSERT INTO run_labels VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (owner.run_id, owner.principal, label.value, call_id, at),
                )

        await self._writer.commit(work)
