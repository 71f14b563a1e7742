from __future__ import annotations

import asyncio
import os

import pytest

from palyra.launch.waiting import readable, unbroken, writable


def test_work_is_finished_although_the_waiter_is_cancelled_again_and_again() -> None:
    async def go() -> list[str]:
        done: list[str] = []

        async def work() -> None:
            for _ in range(5):
                await asyncio.sleep(0.001)
            done.append("finished")

        task = asyncio.create_task(unbroken(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return done

    assert asyncio.run(go()) == ["finished"]


def test_a_result_and_an_error_pass_through() -> None:
    async def give(value: int) -> int:
        return 10 // value

    assert asyncio.run(unbroken(give(5))) == 2
    with pytest.raises(ZeroDivisionError):
        asyncio.run(unbroken(give(0)))


def test_descriptors_are_waited_for_and_let_go() -> None:
    async def go() -> None:
        read, write = os.pipe()
        await writable(write)
        waiting = asyncio.create_task(readable(read))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.close(write)
        await waiting
        os.close(read)

    asyncio.run(go())
