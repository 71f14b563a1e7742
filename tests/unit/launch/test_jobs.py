"""Jobs run as forks of one zygote or as programs of their own, with the same answer; nothing outlives its owner."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palyra import inside
from palyra.launch import jobs as module
from palyra.launch.jobs import Jobs
from tests.promises import promise

PROGRAM = """
import json, os, sys
def main():
    fd, how = int(sys.argv[1]), sys.argv[2]
    if how == "die":
        os.kill(os.getpid(), 9)
    if how == "fail":
        raise OSError("no")
    os.write(fd, json.dumps([sys.argv[2:], sorted(map(int, os.listdir("/proc/self/fd"))), os.getppid()]).encode())
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jobs with the real zygote and one program for these tests."""
    own = Path(str(inside.__file__)).parent
    (tmp_path / "zygote.py").write_bytes((own / "zygote.py").read_bytes())
    (tmp_path / "telling.py").write_text(PROGRAM)
    monkeypatch.setattr(module.inside, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


async def tell(jobs: Jobs, *words: str) -> tuple[bool, list[object]]:
    read, write = os.pipe()
    try:
        done = await jobs.run("telling", [write, *words])
    finally:
        os.close(write)
    text = os.read(read, 65536)
    os.close(read)
    return done, json.loads(text) if text else []


def zygote_of(jobs: Jobs) -> int:
    assert jobs._zygote is not None
    return int(jobs._zygote._end.peek()[2][1])  # type: ignore[index]


def gone(pid: int) -> bool:
    """Whether the process is gone, a moment granted."""
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.01)
    return False


@promise("sandbox.zygote-unreachable")
def test_a_job_gets_its_words_and_no_descriptor_beside_its_own(folder: Path) -> None:
    secret, leak = os.pipe()
    os.set_inheritable(leak, True)

    async def story() -> None:
        jobs = Jobs()
        done, (words, fds, parent) = await tell(jobs, "it's", "\udcff", "{0}")
        assert (done, words, parent) == (True, ["it's", "\udcff", "{0}"], zygote_of(jobs))
        # stdio, the request, where it says "k", its own, and the listing itself
        assert len(fds) == 7  # type: ignore[arg-type]
        jobs.close()

    asyncio.run(story())
    os.close(secret)
    os.close(leak)


@promise("sandbox.zygote-unreachable")
@pytest.mark.parametrize("how", ["fail", "die"])
@pytest.mark.parametrize("directly", [False, True])
def test_a_job_that_breaks_off_is_no_success(
    folder: Path, monkeypatch: pytest.MonkeyPatch, how: str, directly: bool
) -> None:
    if directly:
        monkeypatch.setattr(Jobs, "_ask_zygote", lambda *_: -1)

    async def story() -> None:
        jobs = Jobs()
        assert (await tell(jobs, how))[0] is False
        assert (await tell(jobs, "well"))[0] is True
        jobs.close()

    asyncio.run(story())


@promise("sandbox.zygote-unreachable")
def test_an_unknown_job_fails_and_the_zygote_lives_on(folder: Path) -> None:
    async def story() -> None:
        jobs = Jobs()
        assert await jobs.run("../telling", []) is False
        assert await jobs.run("missing", []) is False
        first = zygote_of(jobs)
        assert (await tell(jobs, "well"))[0] is True
        assert zygote_of(jobs) == first
        jobs.close()

    asyncio.run(story())


@promise("sandbox.zygote-unreachable")
def test_a_zygote_that_was_killed_is_replaced(folder: Path) -> None:
    async def story() -> None:
        jobs = Jobs()
        await tell(jobs, "well")
        first = zygote_of(jobs)
        os.kill(first, signal.SIGKILL)
        while module._os.state(first) != "Z":
            await asyncio.sleep(0.01)
        assert (await tell(jobs, "well"))[0] is True
        assert zygote_of(jobs) != first
        jobs.close()

    asyncio.run(story())


def test_many_jobs_at_once_each_get_their_own_answer(folder: Path) -> None:
    async def story() -> None:
        jobs = Jobs()
        answers = await asyncio.gather(*(tell(jobs, str(number)) for number in range(40)))
        assert [(done, told[0]) for done, told in answers] == [(True, [str(number)]) for number in range(40)]
        jobs.close()

    asyncio.run(story())


def test_closing_or_dropping_it_ends_the_zygote_and_leaves_no_descriptor(folder: Path) -> None:
    async def story() -> list[int]:
        pids = []
        for close in (True, False):
            jobs = Jobs()
            await tell(jobs, "well")
            pids.append(zygote_of(jobs))
            if close:
                jobs.close()
            del jobs
        gc.collect()
        return pids

    before = sorted(os.listdir("/proc/self/fd"))
    for pid in asyncio.run(story()):
        assert gone(pid)
    assert set(os.listdir("/proc/self/fd")) <= set(before)  # what others left open may have gone meanwhile


def test_a_killed_engine_takes_its_zygote_along() -> None:
    code = (
        "import asyncio, os, signal\nfrom palyra.launch.jobs import Jobs\nfrom tests.unit.launch.test_jobs import *\n"
        "jobs = Jobs()\nprint(asyncio.run(jobs.run('missing', [])), zygote_of(jobs), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    said, pid = done.stdout.split()
    assert (said, done.returncode) == ("False", -signal.SIGKILL)
    assert gone(int(pid))


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandboxes are bounded that way")
def test_a_bound_that_cannot_be_written_is_a_failure() -> None:
    """No namespace behind the descriptor, or a count the kernel refuses: the job says so, and nothing else changes."""
    before = Path("/proc/sys/kernel/pid_max").read_text()

    async def story() -> list[bool]:
        jobs = Jobs()
        fds = [os.open("/dev/null", os.O_RDONLY), os.open("/proc/self/ns/pid", os.O_RDONLY)]
        try:
            return [await jobs.run("bounding", [fds[0], "400"]), await jobs.run("bounding", [fds[1], "1"])]
        finally:
            for fd in fds:
                os.close(fd)
            jobs.close()

    assert asyncio.run(story()) == [False, False]
    assert Path("/proc/sys/kernel/pid_max").read_text() == before
