from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from palyra.launch._os import is_childless
from palyra.launch.waiting import ends_within, is_collected_within, readable, unbroken, writable


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


def test_a_process_is_over_when_its_parent_has_collected_it_or_is_gone() -> None:
    """A dead one that nobody has collected is not: how it ended cannot be told yet."""
    script = ["sh", "-c", "sleep 0.2 & echo $!; exec sleep 100"]  # what it becomes collects nobody
    with subprocess.Popen(script, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        fds = os.pidfd_open(int(parent.stdout.readline())), os.pidfd_open(parent.pid)
        try:
            assert ends_within(fds[0], 5)
            assert not is_childless(parent.pid)
            assert not is_collected_within(*fds, 0.05)
            parent.kill()
            assert is_collected_within(*fds, 5)
        finally:
            for fd in fds:
                os.close(fd)


def test_a_process_without_a_child_is_childless_and_one_that_is_not_there_is_not_known_to_be() -> None:
    with subprocess.Popen(["sleep", "100"]) as alone:
        assert is_childless(alone.pid)
        assert not is_childless(os.getpid())
        alone.kill()
    assert not is_childless(alone.pid)
