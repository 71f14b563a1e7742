"""A fake for the engine's port of run facts: in memory, with the real one's promises. `palyra.testing` joins it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from palyra.model.process import ProcessOwner
from palyra.model.run_facts import NO_FACTS, RunFacts, RunLabel
from palyra.values import dataclass


@dataclass
class FakeRunFacts:
    """`facts` are what a run begins with; labels that calls set stay with their run."""

    facts: RunFacts = NO_FACTS
    marked: dict[ProcessOwner, frozenset[RunLabel]] = field(default_factory=dict)

    def read(self, owner: ProcessOwner) -> RunFacts:
        return replace(self.facts, labels=self.facts.labels | self.marked.get(owner, frozenset()))

    def count_calls(self, owner: ProcessOwner, *, since_unix_ms: int) -> int:
        return self.facts.calls_last_minute

    async def mark(self, owner: ProcessOwner, call_id: str, labels: Iterable[RunLabel]) -> None:
        self.marked[owner] = self.marked.get(owner, frozenset()) | frozenset(labels)
