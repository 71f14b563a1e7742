"""No descriptors and no processes left: any number of them ends in an answer, and the next call is as ever."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra import AsyncPalyra
from tests.command_line import Cli
from tests.faults.conftest import check_said
from tests.journaling import audit_home


def limited(cli: Cli, what: int, limit: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    def lower() -> None:
        resource.setrlimit(what, (limit, limit))

    return subprocess.run(
        [*cli.argv, *words], cwd=cli.workspace, env=cli.environ, preexec_fn=lower, capture_output=True, timeout=120
    )


@pytest.mark.slow
def test_with_any_number_of_descriptors_there_is_an_answer(cli: Cli) -> None:
    assert cli("run", "--", "true").returncode == 0
    answered = []
    for limit in (10, 12, 14, 17, 20, 24, 28, 33, 40, 64):
        done = limited(cli, resource.RLIMIT_NOFILE, limit, "run", "--", "echo", "hi")
        answered.append(done.returncode == 0)
        if done.returncode == 0:
            assert done.stdout == b"hi\n"
        else:
            assert (done.stdout, b"open" in done.stderr) == (b"", True), done.stderr
            check_said(done.stderr)
    assert answered[-1], "64 descriptors are enough for one call"
    assert cli("run", "--", "true").returncode == 0
    assert cli("journal", "verify").returncode == 0


def use_up_descriptors() -> Callable[[], None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        pass

    def give_back() -> None:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return give_back


@pytest.mark.slow
@pytest.mark.parametrize("spare", [0, 3, 8, 14, 20])
def test_an_embedder_that_ran_out_of_descriptors_gets_answers_and_goes_on(
    home: Path, workspace: Path, spare: int
) -> None:
    async def story() -> None:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=workspace)
            assert (await run.call("palyra.process.run", {"command": "true"})).success
            kept = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(spare)]
            give_back = use_up_descriptors()
            for fd in kept:
                os.close(fd)
            try:
                for tool, given in (
                    ("palyra.process.run", {"command": "true"}),
                    ("palyra.echo", {"a": 1}),
                    ("palyra.fs.list", {"path": "."}),
                ):
                    outcome = await run.call(tool, given)
                    if not outcome.success:
                        assert outcome.reason is not None
                        assert outcome.message, outcome
                        assert outcome.hint, outcome
            finally:
                give_back()
            outcome = await run.call("palyra.process.run", {"command": "true"})
            assert outcome.success, outcome
        async with AsyncPalyra.open(str(home)) as palyra:
            assert audit_home(palyra.installation.writer.home, alive=True, every=True).findings == ()

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not count root's processes")
def test_without_processes_left_there_is_an_answer(cli: Cli) -> None:
    assert cli("run", "--", "true").returncode == 0
    mine = sum(1 for name in os.listdir("/proc") if name.isdigit() and _is_mine(name))
    for more in (0, 1, 2, 3, 5, 8):
        done = limited(cli, resource.RLIMIT_NPROC, mine + more, "run", "--", "echo", "hi")
        if done.returncode == 0:
            assert done.stdout == b"hi\n"
        else:
            check_said(done.stderr)
    assert cli("run", "--", "true").returncode == 0
    assert cli("journal", "verify").returncode == 0


def _is_mine(pid: str) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
