"""One durable append alone, beside one raw fsync of a page: what the journal adds to a call that waits for the disk.

Each waits first, outside of the measured time, until the kernel's clock has ticked since the last write: within a tick
a file's time stays as it is, and an fsync right behind another has nothing but data to sync, which none that comes
alone has. The wait does not sleep: a processor that slept measures its waking up.
"""

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
TICK_NS = 11_000_000
"""More than a tick of the slowest clock that kernels are made with."""


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        yield Row(
            name="journal_single",
            title="Journal: one durable append alone",
            note="Ours writes the entry, its leaf, the head and a signed checkpoint through SQLite, awaited in a loop; "
            "the peer writes one page of a file that has its space already, and syncs it. Each comes alone: a tick of "
            "the kernel's clock after the other, so that the peer's sync has the file's time to write as well.",
            contenders=(alone(stack.enter_context(ours(ground))), alone(stack.enter_context(raw_fsync(ground)))),
            aims=(Aim(peer="raw fsync", at_most=1.6),),
        )


def alone(contender: Contender) -> Contender:
    run = contender.run
    assert run is not None

    def after_a_tick() -> int:
        end = time.perf_counter_ns() + TICK_NS
        while time.perf_counter_ns() < end:
            pass
        return run()

    return Contender(name=contender.name, run=after_a_tick)


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
