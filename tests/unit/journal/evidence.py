"""A journal with some calls among other entries, and what a command makes of it for somebody else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from palyra.journal.keys import Keys
from palyra.journal.lookup import Lookup
from palyra.journal.store import JournalStore
from palyra.journal.tree import Tree
from palyra.model.record import Checkpoint
from palyra.state.writer import Writer
from tests.journaling import many_acts, open_store, run_spec, ulid, walk_call


@dataclass
class Evidence:
    writer: Writer
    store: JournalStore
    calls: tuple[str, ...]

    @property
    def lookup(self) -> Lookup:
        return Lookup(self.writer.rows, self.writer.home.verifier)

    @property
    def tree(self) -> Tree:
        return Tree(self.writer.rows)

    @property
    def keys(self) -> Keys:
        return self.writer.home.keys

    @property
    def head(self) -> Checkpoint:
        newest = self.lookup.checkpoint()
        assert newest is not None
        return newest

    def bodies(self) -> list[bytes]:
        return [row[0] for row in self.writer.rows("SELECT body FROM entries ORDER BY idx")]


def make_evidence(home: Path, *, before: int = 5, after: int = 7) -> Evidence:
    writer, store = open_store(home)
    calls = (ulid(), ulid())
    many_acts(writer, before)

    async def scenario() -> None:
        run = run_spec(ulid())
        for call_id in calls:
            await walk_call(store, run, call_id)

    asyncio.run(scenario())
    many_acts(writer, after)
    return Evidence(writer, store, calls)
