"""Who shares a commit, with a writer that only notes who came together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palyra.errors import StateError
from palyra.state.absence import Waiting
from palyra.state.sharing import TURNS_TO_GATHER, Sharing


class Notes:
    """A writer that remembers its batches, and is busy for as long as it is told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.busy = 0

    def try_all(self, batch: list[Waiting[Any]]) -> bool:
        if self.busy:
            self.busy -= 1
            return False
        self.batches.append(len(batch))
        for waiting in batch:
            waiting.value = len(self.batches)
        return True

    def notice_fork(self) -> None:
        pass

    def is_away(self) -> bool:
        return False

    def too_long(self) -> StateError:
        return StateError("too long")

    def look_after(self, loop: object) -> None:
        pass


def waiting() -> Waiting[int]:
    return Waiting(lambda tx: 0, closing=False)


async def come_after(sharing: Sharing, turns: int) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    return (await sharing.enqueue(waiting()))[0]


def test_one_alone_goes_at_once():
    notes = Notes()

    async def alone() -> bool:
        return Sharing(notes).enqueue(waiting()).done()

    assert asyncio.run(alone())
    assert notes.batches == [1]


def test_the_others_of_a_turn_go_together():
    notes = Notes()

    async def come() -> list[int]:
        sharing = Sharing(notes)
        return await asyncio.gather(*(come_after(sharing, 0) for _ in range(5)))

    assert asyncio.run(come()) == [1, 2, 2, 2, 2]
    assert notes.batches == [1, 4]


def test_who_is_on_the_way_when_the_first_waits_shares_its_commit():
    notes = Notes()

    async def come() -> None:
        sharing = Sharing(notes)
        await asyncio.gather(*(come_after(sharing, 0) for _ in range(3)))
        await asyncio.gather(*(come_after(sharing, turns) for turns in range(TURNS_TO_GATHER + 1)))

    asyncio.run(come())
    assert notes.batches == [1, 2, TURNS_TO_GATHER + 1]


def test_where_only_one_is_left_it_goes_at_once_again():
    notes = Notes()

    async def come() -> bool:
        sharing = Sharing(notes)
        await asyncio.gather(*(come_after(sharing, 0) for _ in range(3)))
        await sharing.enqueue(waiting())
        return sharing.enqueue(waiting()).done()

    assert asyncio.run(come())


def test_who_was_cancelled_before_the_commit_is_not_in_it():
    notes = Notes()

    async def come() -> None:
        sharing = Sharing(notes)
        first, second, third = (sharing.enqueue(waiting()) for _ in range(3))
        second.cancel()
        await third
        assert first.done()

    asyncio.run(come())
    assert notes.batches == [1, 1]


def test_a_lock_held_elsewhere_is_waited_for():
    notes = Notes()
    notes.busy = 3

    async def come() -> int:
        return (await Sharing(notes).enqueue(waiting()))[0]

    assert asyncio.run(come()) == 1


def test_a_second_loop_is_refused_while_the_first_runs():
    notes = Notes()

    async def come() -> None:
        sharing = Sharing(notes)
        sharing.enqueue(waiting())

        async def elsewhere() -> None:
            with pytest.raises(StateError):
                sharing.enqueue(waiting())

        await asyncio.to_thread(asyncio.run, elsewhere())

    asyncio.run(come())


def test_the_record_of_what_has_run_is_written_though_its_caller_is_cancelled():
    notes = Notes()
    notes.busy = 2

    async def close(sharing: Sharing) -> int:
        future = sharing.enqueue(Waiting(lambda tx: 0, closing=True))
        while not future.done():
            try:
                await future
            except asyncio.CancelledError:
                continue
        return future.result()[0]

    async def come() -> tuple[int, int]:
        task = asyncio.create_task(close(Sharing(notes)))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        return await task, task.cancelling()

    assert asyncio.run(come()) == (1, 3)
    assert notes.batches == [1]
