"""The journal under 64 callers: durable, signed appends, beside one INSERT with its own fsync for each entry."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.journal_ground import ACT
from palyra.budget.store import BudgetStore
from palyra.journal.lookup import TREE_SIZE
from palyra.journal.store import JournalStore
from palyra.state.writer import Writer

CALLERS = 64
EACH = 8
APPENDS = CALLERS * EACH
YARDSTICK = "10 000 a second"


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        yield Row(
            name="journal",
            title=f"Journal: {APPENDS} durable appends by {CALLERS} callers",
            note="Ours builds in-toto entries, hashes them into a Merkle tree and signs a checkpoint for every group "
            "commit; the peer stores as many bytes and nothing else, one transaction each. The aim is 10 000 a second "
            "(a yardstick, not a program), or six times the peer's rate: a ratio of 0.17.",
            contenders=(
                stack.enter_context(ours(ground)),
                Contender(name=YARDSTICK, run=lambda: APPENDS * 100_000),
                stack.enter_context(one_by_one(ground)),
            ),
            aims=(Aim(peer=YARDSTICK, at_most=1.0),),
        )


@contextmanager
def ours(ground: Ground) -> Iterator[Contender]:
    writer = Writer.open(ground.home)
    store = JournalStore(writer, BudgetStore())
    loop = asyncio.new_event_loop()

    async def caller() -> None:
        for _ in range(EACH):
            await store.record_act(ACT, at_unix_ms=1)

    async def all_callers() -> int:
        before = writer.rows(TREE_SIZE)[0][0]
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return int(writer.rows(TREE_SIZE)[0][0]) - int(before)

    def check(appended: int) -> None:
        assert appended == APPENDS

    yield Contender(name="palyra journal", run=timed(lambda: loop.run_until_complete(all_callers()), check))
    loop.close()
    writer.close()


@contextmanager
def one_by_one(ground: Ground) -> Iterator[Contender]:
    with closing(sqlite3.connect(ground.home / "peer.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE entries (idx INTEGER PRIMARY KEY, body BLOB)")
        body = b"x" * 620

        def insert() -> int:
            for _ in range(APPENDS):
                connection.execute("INSERT INTO entries (body) VALUES (?)", (body,))
            return APPENDS

        def check(inserted: int) -> None:
            assert inserted == APPENDS

        yield Contender(name="INSERT + fsync", run=timed(insert, check))
