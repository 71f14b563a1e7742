"""One durable append alone, beside one raw fsync of a page: what the journal adds to a call that waits for the disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.journal_ground import ACT
from palyra.budget.store import BudgetStore
from palyra.journal.store import JournalStore
from palyra.state.writer import Writer

PAGE = 4096
PAGES = 1024
WARM_UP_APPENDS = 400


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        yield Row(
            name="journal_single",
            title="Journal: one durable append alone",
            note="Ours writes the entry, its leaf, the head and a signed checkpoint through SQLite, awaited in a loop; "
            "the peer writes one page of a file that has its space already, and syncs it.",
            contenders=(stack.enter_context(ours(ground)), stack.enter_context(raw_fsync(ground))),
            aims=(Aim(peer="raw fsync", at_most=1.6),),
        )


@contextmanager
def ours(ground: Ground) -> Iterator[Contender]:
    writer = Writer.open(ground.home)
    store = JournalStore(writer, BudgetStore())
    loop = asyncio.new_event_loop()

    async def append() -> int:
        start = time.perf_counter_ns()
        receipt = await store.record_act(ACT, at_unix_ms=1)
        took = time.perf_counter_ns() - start
        assert receipt.checkpoint
        return took

    for _ in range(WARM_UP_APPENDS):  # until the log file is reused instead of growing, as in any longer life
        loop.run_until_complete(append())
    yield Contender(name="palyra append", run=lambda: loop.run_until_complete(append()))
    loop.close()
    writer.close()


@contextmanager
def raw_fsync(ground: Ground) -> Iterator[Contender]:
    fd = os.open(ground.home / "raw", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, bytes(PAGE * PAGES))
    os.fsync(fd)
    places = iter(range(1 << 30))

    def sync() -> int:
        written = os.pwrite(fd, os.urandom(PAGE), next(places) % PAGES * PAGE)
        os.fsync(fd)
        return written

    def check(written: int) -> None:
        assert written == PAGE

    yield Contender(name="raw fsync", run=timed(sync, check))
    os.close(fd)
