"""Upkeep begins when a life has turned out to last, and never costs a commit its answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from palyra.journal.acts import Act, ActKind, record_act
from palyra.state.transaction import Transaction
from palyra.state.upkeep import AfterCommits, on_a_thread
from palyra.state.writer import COMMITS_BEFORE_HASTE, Writer


def test_work_is_done_once_after_so_many_commits_of_a_loop() -> None:
    done: list[int] = []

    async def story() -> None:
        upkeep, loop = AfterCommits(3), asyncio.get_running_loop()
        for number in range(8):
            upkeep.count(None, lambda: done.append(-1))
            upkeep.count(loop, lambda number=number: done.append(number))  # type: ignore[misc]

    asyncio.run(story())
    assert done == [2]


class NoThreads(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        self.asked += 1
        raise RuntimeError("can't start new thread")


def test_where_no_thread_is_to_be_had_it_is_tried_again_later() -> None:
    loop, upkeep = NoThreads(), AfterCommits(2)
    try:
        for _ in range(6):
            upkeep.count(loop, lambda: None)
        assert loop.asked == 3
        assert not on_a_thread(loop, lambda: None)
    finally:
        loop.close()


def test_a_writer_that_goes_on_signs_faster_and_its_journal_reads_the_same(tmp_path: Path) -> None:
    writer = Writer.open(tmp_path / "home")
    slow = writer.home.key.sign

    def work(tx: Transaction) -> int:
        return record_act(tx, Act(kind=ActKind.SANDBOX_PROVED, actor="uid:0", subject="proof/1"), at_unix_ms=1)

    async def story() -> None:
        for _ in range(COMMITS_BEFORE_HASTE):
            await writer.commit(work)
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(story())
    assert writer.home.key.sign is not slow
    _, receipt = writer.commit_now(work)
    writer.close()
    again = Writer.open(tmp_path / "home")  # reads the head and checks who signed it
    again.commit_now(work)
    assert receipt is not None
    assert receipt.index == COMMITS_BEFORE_HASTE
    again.close()
