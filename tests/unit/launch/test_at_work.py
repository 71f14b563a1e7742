"""Room for calls: counted, given in order, and never lost to somebody who went away."""

from __future__ import annotations

import asyncio

from palyra.launch.at_work import AtWork


async def entered(work: AtWork, name: str, order: list[str]) -> None:
    if not work.has_entered():
        await work.turn()
    order.append(name)


def test_whoever_comes_first_is_first_and_no_more_than_there_is_room_for() -> None:
    async def story() -> None:
        work, order = AtWork(2), list[str]()
        tasks = [asyncio.create_task(entered(work, name, order)) for name in "abcd"]
        await asyncio.sleep(0)
        assert (order, work.running) == (["a", "b"], 2)
        work.leave()
        assert not work.has_entered(), "the place that was left belongs to who waited"
        await asyncio.sleep(0)
        assert (order, work.running) == (["a", "b", "c"], 2)
        work.leave()
        work.leave()
        await asyncio.gather(*tasks)
        assert (order, work.running) == (["a", "b", "c", "d"], 1)
        work.leave()
        assert (work.running, work.has_entered()) == (0, True)

    asyncio.run(story())


def test_who_gives_up_waiting_takes_no_place() -> None:
    async def story() -> None:
        work, order = AtWork(1), list[str]()
        assert work.has_entered()
        gone, stays = (asyncio.create_task(entered(work, name, order)) for name in "ab")
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        work.leave()
        await stays
        assert (order, work.running) == (["b"], 1)

    asyncio.run(story())


def test_who_is_cancelled_with_a_place_in_hand_passes_it_on() -> None:
    async def story() -> None:
        work, order = AtWork(1), list[str]()
        assert work.has_entered()
        gone, stays = (asyncio.create_task(entered(work, name, order)) for name in "ab")
        await asyncio.sleep(0)
        work.leave()  # to the first, which has not run yet
        gone.cancel()
        await stays
        assert (order, work.running) == (["b"], 1)
        work.leave()
        assert work.running == 0

    asyncio.run(story())
