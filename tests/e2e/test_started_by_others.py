"""What whoever started a command decided for it: signals that are ignored, streams that do not wait, a terminal whose
background it is in."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.keeping import running, wait_for
from tests.serving import serving


def start(cli: Any, *args: str, ignored: tuple[int, ...] = (), **streams: Any) -> subprocess.Popen[bytes]:
    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    given: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    } | streams
    return subprocess.Popen(  # type: ignore[no-any-return]
        [*cli.argv, *args],
        cwd=cli.workspace,
        env=cli.environ,
        preexec_fn=ignore,  # noqa: PLW1509  # only the kernel is asked for something in there
        **given,
    )


@pytest.mark.parametrize("daemon", [False, True], ids=["embedded", "through a daemon"])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_was_ignored_before_the_start_ends_no_call(cli, number: int, daemon: bool) -> None:
    """`nohup palyra run … &` ended with its terminal, a script's background job with a Ctrl-C that was not for it."""

    def story() -> None:
        process = start(cli, "run", "--", "sleep", "1.62", ignored=(number,))
        wait_for(lambda: running("sleep", "1.62"))
        process.send_signal(number)
        assert (process.communicate(timeout=60), process.returncode) == ((b"", b""), 0)

    told(cli, story, daemon=daemon)


def told(cli: Any, story: Callable[[], None], *, daemon: bool) -> None:
    if daemon:
        with serving(cli):
            story()
    else:
        story()


@pytest.mark.parametrize("daemon", [False, True], ids=["embedded", "through a daemon"])
def test_a_stdin_that_does_not_wait_is_read_to_its_end(cli, daemon: bool) -> None:
    """It was taken for empty where nothing had come yet: the program got none of it, and the call was a success."""

    def story() -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        process = start(cli, "run", "--", "cat", stdin=reading)
        for part in (b"first ", b"second ", b"third"):
            time.sleep(0.5)
            os.write(writing, part)
        os.close(writing)
        assert (process.communicate(timeout=60), process.returncode) == ((b"first second third", b""), 0)
        os.close(reading)

    told(cli, story, daemon=daemon)


@pytest.mark.parametrize("daemon", [False, True], ids=["embedded", "through a daemon"])
@pytest.mark.parametrize("json_wanted", [False, True], ids=["streamed", "one outcome"])
def test_an_output_that_does_not_wait_is_written_whole(cli, json_wanted: bool, daemon: bool) -> None:
    """A call was cancelled as soon as its reader was a moment late."""
    (cli.workspace / "text").write_text("x" * 500_000)

    def story() -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        process = start(cli, "run", *["--json"] * json_wanted, "--", "cat", "text", stdout=writing)
        os.close(writing)
        time.sleep(1)
        with os.fdopen(reading, "rb") as file:
            came = file.read()
        assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 0)
        assert (json.loads(came)["output"]["stdout"] if json_wanted else came.decode()) == "x" * 500_000

    told(cli, story, daemon=daemon)


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, cli: Any) -> None:
        import pty

        self._pid, self._fd = pty.fork()
        if not self._pid:
            os.chdir(cli.workspace)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], cli.environ | {"PS1": "$ ", "TERM": "dumb"})
        self._said = b""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, word: str) -> str:
        """What it said until then."""

        def said() -> bool:
            if select.select([self._fd], [], [], 0)[0]:
                self._said += os.read(self._fd, 65536)
            return word.encode() in self._said

        wait_for(said)
        before, _, self._said = self._said.partition(word.encode())
        return before.decode(errors="replace")

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._fd)


@pytest.fixture
def terminal(cli):
    if not os.access("/bin/bash", os.X_OK):
        pytest.skip("no shell with jobs")
    made = Terminal(cli)
    yield made
    made.close()


def test_in_the_background_of_a_terminal_a_program_that_reads_nothing_goes_on(cli, terminal) -> None:
    """The kernel stopped us for reading ahead, in a job of the background and in one that was put there."""
    line = " ".join([*cli.argv, "run", "--", "sleep"])
    terminal.type(f"{line} 1.73 & wait; echo ended $?$((1+1))\n")
    assert "topped" not in terminal.until("ended 02")
    terminal.type(f"{line} 2.74\n")
    wait_for(lambda: running("sleep", "2.74"))
    terminal.type("\x1a")
    terminal.until("topped")
    terminal.type("bg; wait; echo ended $?$((1+2))\n")
    assert "topped" not in terminal.until("ended 03")


def test_a_program_in_the_background_gets_what_is_typed_once_it_is_in_the_foreground(cli, terminal) -> None:
    terminal.type(" ".join([*cli.argv, "run", "--", "cat"]) + " &\n")
    wait_for(lambda: running("cat"))
    terminal.type("echo mine$((4+4))\n")
    terminal.until("mine8")
    terminal.type("fg\n")
    terminal.until("cat")
    terminal.type("yours\n")
    terminal.until("yours")
    terminal.until("yours")
    terminal.type("\x04")
    terminal.type("echo ended $?$((5+5))\n")
    terminal.until("ended 010")


def test_a_daemon_whose_terminal_is_closed_ends_as_it_does_when_told_to(cli) -> None:
    with serving(cli) as served:
        code, log = served.end(signal.SIGHUP)
    assert (code, b"Traceback" in log) == (0, False)
    assert not (cli.home / "run" / "palyrad.json").exists()
