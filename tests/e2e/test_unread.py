"""`palyra run` into a pipe that nobody reads: the deadline, Ctrl-C and SIGTERM work all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def unread(cli, *args: str, both: bool = False) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run whose stdout (and stderr) is a pipe with a reader that does not read."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*cli.argv, "run", *args],
        cwd=cli.workspace,
        env=cli.environ,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing if both else subprocess.PIPE,
    )
    os.close(writing)
    try:
        yield process, reading
    finally:
        os.close(reading)
        process.kill()
        process.communicate()


def wait_until_full(reading: int) -> None:
    """Until nothing more comes into the pipe: whoever writes is stuck, or waits."""
    import fcntl
    import struct
    import termios

    sizes = [-1, 0]
    while sizes[-1] == 0 or sizes[-1] != sizes[-2]:
        time.sleep(0.3)
        sizes.append(struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4))[0])


def last_status(cli) -> str:
    return cli("journal", "tail").stdout.decode().splitlines()[-1]


@pytest.mark.parametrize("both", [False, True], ids=["stdout", "both in one pipe"])
def test_the_deadline_holds_when_nobody_reads(cli, both: bool) -> None:
    with unread(cli, "--timeout", "1", "--", "yes", both=both) as (process, _):
        assert process.wait(60) == 124
    assert "TIMEOUT" in last_status(cli)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_nobody_reads(cli, number: signal.Signals) -> None:
    with unread(cli, "--", "yes") as (process, reading):
        wait_until_full(reading)
        process.send_signal(number)
        assert process.wait(60) == 130
    assert "CANCELLED" in last_status(cli)


def test_a_signal_ends_the_wait_for_a_reader_when_the_program_is_done(cli) -> None:
    with unread(cli, "--", "head", "-c", "200000", "/dev/zero") as (process, reading):
        wait_until_full(reading)
        while "completed" not in last_status(cli):
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"palyra: The output was not read: ")


def test_a_reader_who_comes_late_gets_every_byte(cli) -> None:
    with unread(cli, "--", "seq", "100000") as (process, reading):
        wait_until_full(reading)
        with os.fdopen(os.dup(reading), "rb") as file:
            assert file.read() == b"".join(b"%d\n" % n for n in range(1, 100001))
        assert process.wait(60) == 0


def test_stderr_is_heard_while_nobody_reads_stdout(cli) -> None:
    script = "echo heard >&2; yes"
    with unread(cli, "--allow-interpreters", "--timeout", "2", "--", "sh", "-c", script) as (process, _):
        assert process.stderr is not None
        assert process.stderr.readline() == b"heard\n"
        assert process.wait(60) == 124


def test_a_terminal_shows_both_streams_in_the_order_they_came(cli) -> None:
    script = "for i in 1 2 3 4 5; do echo out$i; sleep 0.05; echo err$i >&2; sleep 0.05; done"
    done = subprocess.run(
        [*cli.argv, "run", "--allow-interpreters", "--", "sh", "-c", script],
        cwd=cli.workspace,
        env=cli.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    assert done.stdout.decode().split() == [f"{name}{n}" for n in range(1, 6) for name in ("out", "err")]
