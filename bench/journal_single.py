"""One durable append alone, beside one raw fsync of a page: what the journal adds to a call that waits for the disk.

Between both stands the least that SQLite and Ed25519 allow: the append's two rows and its signature, nothing computed,
checked or locked around them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.journal_ground import ACT
from palyra.budget.store import BudgetStore
from palyra.journal.store import JournalStore
from palyra.state.connection import connect
from palyra.state.sqlite import LOG_BYTES
from palyra.state.writer import Writer

PAGE = 4096
PAGES = 1024
WARM_UP_APPENDS = 400
BODY_BYTES, TEXT_BYTES, NOTE_CHARS = 430, 80, 205
"""Of the entry that is appended here, of what its checkpoint signs, of the checkpoint."""


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        yield Row(
            name="journal_single",
            title="Journal: one durable append alone",
            note="Ours writes the entry, its leaf, the head and a signed checkpoint through SQLite, awaited in a loop; "
            "the peer writes one page of a file that has its space already, and syncs it. The same two rows with one "
            "signature, nothing computed, checked or locked around them, are what no signed append through SQLite can "
            "undercut. All three wait for the same disk; what ours adds to that is the same on a slow one.",
            contenders=(
                stack.enter_context(ours(ground)),
                stack.enter_context(raw_fsync(ground)),
                stack.enter_context(two_rows(ground)),
            ),
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
def two_rows(ground: Ground) -> Iterator[Contender]:
    """In a home of its own, by a connection with our settings, in a log that need not grow."""
    writer = Writer.open(ground.home / "two-rows")
    key = writer.home.key
    key.hasten()
    with closing(connect(writer.home.database)) as connection:
        execute, places = connection.cursor().execute, iter(range(1, 1 << 30))

        def append(body: bytes = b"b" * BODY_BYTES) -> bytes:
            at = next(places)
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO entries VALUES (?, ?, ?)", (at, body[:32], body))
            signature = key.sign(body[:TEXT_BYTES])
            execute("INSERT INTO checkpoints VALUES (?, ?)", (at, (signature * 4).hex()[:NOTE_CHARS]))
            execute("COMMIT")
            return signature

        def check(signature: bytes) -> None:
            assert len(signature) == 64

        append(bytes(LOG_BYTES))
        execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        yield Contender(name="two rows, a signature", run=timed(append, check))
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
