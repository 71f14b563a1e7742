"""No descriptors and no processes left: any number of them ends in an answer, and the next call is as ever."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra import AsyncPalyra
from palyra.cli.shortage import shortage_of
from tests.command_line import Cli
from tests.faults.conftest import check_said
from tests.journaling import audit_home


def limited(cli: Cli, what: int, limit: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    def lower() -> None:
        resource.setrlimit(what, (limit, limit))

    return subprocess.run(
        [*cli.argv, *words], cwd=cli.workspace, env=cli.environ, preexec_fn=lower, capture_output=True, timeout=120
    )


def with_spare_descriptors(cli: Cli, spare: int, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The limit is as it should be; all but so many are taken by what the process inherits."""

    def take() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        os.closerange(3, 256)  # what would be closed by the exec only
        taken = []
        try:
            while True:
                taken.append(os.dup(2))
                os.set_inheritable(taken[-1], True)
        except OSError:
            for fd in taken[len(taken) - spare :]:
                os.close(fd)

    argv = [*cli.argv, *words]
    return subprocess.run(
        argv,
        cwd=cli.workspace,
        env=cli.environ,
        input=stdin,
        preexec_fn=take,
        close_fds=False,
        capture_output=True,
        timeout=120,
    )


STARTS = (("run", "--", "echo", "hi"), ("mcp",), ("serve", "--port", "0"), ("ps",), ("token", "list"))


@pytest.mark.slow
@pytest.mark.parametrize("words", STARTS, ids=lambda words: words[0])
def test_a_start_with_few_descriptors_ends_in_a_sentence(cli: Cli, words: tuple[str, ...]) -> None:
    """It ended in a traceback of the event loop, or in the advice to restore the key from a backup."""
    assert cli("run", "--", "true").returncode == 0
    for spare in (5, 6, 7):
        done = with_spare_descriptors(cli, spare, *words)
        assert done.returncode != 0, done.stderr
        check_said(done.stderr)
        assert b"ulimit -n" in done.stderr, done.stderr
        assert b"never awaited" not in done.stderr
    if words[0] in ("run", "mcp", "serve"):
        done = limited(cli, resource.RLIMIT_NOFILE, 20, *words)
        check_said(done.stderr)
        assert (done.returncode, b"limit on open files is 20" in done.stderr) == (125, True)


@pytest.mark.slow
@pytest.mark.parametrize("words", STARTS, ids=lambda words: words[0])
def test_a_start_with_little_memory_ends_in_a_sentence(cli: Cli, words: tuple[str, ...]) -> None:
    """It ended in tracebacks, and where a native library aborts, in that library's words."""
    for mebibytes in (40, 60, 100, 180):
        done = limited(cli, resource.RLIMIT_AS, mebibytes << 20, *words)
        check_said(done.stderr)
        assert (done.returncode, b"memory" in done.stderr, done.stdout) == (125, True, b"")


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (MemoryError(), errno.ENOMEM),
        (ImportError("x.so: failed to map segment from shared object"), errno.ENOMEM),
        (OSError("x.so: cannot allocate memory in static TLS block"), errno.ENOMEM),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), errno.ENOMEM),
        (ImportError("x.so: cannot open shared object file: Too many open files"), errno.EMFILE),
        (ImportError("cannot import name 'x'"), 0),
        (OSError(errno.EACCES, "Permission denied"), 0),
        (ValueError("failed to map segment"), 0),
    ],
)
def test_what_ran_out_is_known_from_the_error(error: Exception, number: int) -> None:
    assert shortage_of(error) == number
    wrapped = RuntimeError("it failed")
    wrapped.__cause__ = error
    assert shortage_of(wrapped) == number


@pytest.mark.slow
def test_with_any_number_of_descriptors_there_is_an_answer(cli: Cli) -> None:
    assert cli("run", "--", "true").returncode == 0
    answered = []
    for spare in (7, 9, 11, 14, 17, 21, 25, 30, 37, 61):
        done = with_spare_descriptors(cli, spare, "run", "--", "echo", "hi")
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
