"""When a pool refills: after the call that used a sandbox, however early it was wished for. The rest: conformance."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from palyra.launch.at_work import AtWork
from palyra.launch.held import Held, Template
from palyra.launch.pool import Pool, PoolSize

SIZE = PoolSize(per_template=1, total=1, refill_after_s=0.005)
SHAPE = cast(Template, "a template")


class Ground:
    def __init__(self) -> None:
        self.started = 0
        self.work = AtWork(4)
        self.pool = Pool(self.start, self.end, SIZE, self.work)

    async def start(self, _: Any) -> Held:
        self.started += 1
        return Held()

    async def end(self, _: Held) -> None: ...

    async def later(self, *, least: int = 0) -> int:
        """`least`: so many are waited for, also where everything is slow."""
        for _ in range(1000):
            if self.started >= least:
                break
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.03)
        return self.started


def run(story: Any) -> None:
    async def told() -> None:
        ground = Ground()
        await story(ground)
        await ground.pool.close()

    asyncio.run(told())


@pytest.mark.parametrize("ahead", [True, False])
def test_a_call_is_followed_by_one_refill(ahead: bool) -> None:
    async def story(ground: Ground) -> None:
        assert ground.work.has_entered()
        if ahead:
            ground.pool.wish_ahead(SHAPE)
        ground.work.leave()
        ground.pool.wish(SHAPE)
        assert ground.started == 0
        assert await ground.later(least=1) == 1

    run(story)


def test_nothing_is_started_while_a_program_runs_that_wished_ahead() -> None:
    async def story(ground: Ground) -> None:
        assert ground.work.has_entered()
        ground.pool.wish_ahead(SHAPE)
        assert await ground.later() == 0
        ground.work.leave()
        ground.pool.wish(SHAPE)
        assert await ground.later(least=1) == 1

    run(story)


def test_a_wish_made_ahead_is_not_lost_to_a_refill_in_between() -> None:
    async def story(ground: Ground) -> None:
        assert ground.work.has_entered()
        ground.pool.wish_ahead(SHAPE)
        await ground.pool.settled()
        assert ground.started == 1
        ground.pool._ready[SHAPE].clear()  # somebody took it
        ground.work.leave()
        ground.pool.wish(SHAPE)
        assert await ground.later(least=2) == 2

    run(story)


def test_a_second_call_of_the_same_shape_may_end_first() -> None:
    async def story(ground: Ground) -> None:
        assert [ground.work.has_entered() for _ in range(2)] == [True, True]
        ground.pool.wish_ahead(SHAPE)
        ground.pool.wish(SHAPE)
        ground.work.leave()
        ground.work.leave()
        ground.pool.wish(SHAPE)
        assert await ground.later(least=1) == 1

    run(story)


def test_a_pool_of_nothing_or_a_closed_one_starts_none() -> None:
    async def story(ground: Ground) -> None:
        await ground.pool.close()
        ground.pool.wish_ahead(SHAPE)
        ground.pool.wish(SHAPE)
        assert await ground.later() == 0

    run(story)
