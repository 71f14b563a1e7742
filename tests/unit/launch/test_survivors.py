"""After a crash: exactly the recorded process is killed, never a stranger who has its number by now."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator

import pytest

from palyra.launch.survivors import kill_survivor, open_exactly, start_ticks
from tests.keeping import processes_with, wait_for
from tests.promises import promise


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A shell that leads a session with two more processes in it."""
    argv = ["/bin/sh", "-c", "sleep 75.1 & sleep 75.1 & wait"]
    with subprocess.Popen(argv, start_new_session=True) as process:
        wait_for(lambda: len(processes_with("sleep\x0075.1")) == 2)
        yield process
        process.kill()
        asyncio.run(kill_all())


async def kill_all() -> None:
    for pid in processes_with("75.1"):
        await kill_survivor(pid, start_ticks(pid) or 0)


@promise("calls.reused-pid")
def test_a_process_with_another_start_time_is_a_stranger_and_is_left_alone(child):
    """The pid was reused: the number fits, the start time does not."""
    ticks = start_ticks(child.pid)
    assert ticks is not None
    for other in (ticks - 1, ticks + 1, 0):
        assert asyncio.run(kill_survivor(child.pid, other)) is False
        assert open_exactly(child.pid, other) is None
    assert child.poll() is None
    assert len(processes_with("sleep\x0075.1")) == 2


def test_the_recorded_process_is_killed_with_its_session(child):
    assert asyncio.run(kill_survivor(child.pid, start_ticks(child.pid) or 0)) is True
    assert child.wait(10) == -9
    wait_for(lambda: not processes_with("75.1"))


def test_a_process_that_is_gone_or_a_zombie_has_no_start_time():
    with subprocess.Popen(["/bin/true"]) as ended:
        wait_for(lambda: start_ticks(ended.pid) is None)
        assert open_exactly(ended.pid, 1) is None
        assert asyncio.run(kill_survivor(ended.pid, 1, ("/no/such/group",))) is False
