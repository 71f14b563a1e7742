"""Everything a command says to people, and the three streams it says it on.

Rules: text goes through `visible`, so that no name, path or tool output reaches a terminal as an escape sequence; a
stream that was closed before we started is /dev/null, because otherwise the next file we open takes its number and a
sandbox gets it as its stdout; what a stream's encoding cannot write is spelled out. A stream that does not wait (who
shares it made it so: an ssh, a runtime that polls; it is not ours to change) is waited for: there is more to come, or
there will be room. A terminal is not read from its background, where the kernel would stop us for it, whether or not
the program wants to read.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from time import sleep
from types import SimpleNamespace
from typing import Any

import click

PIPE_GONE = 128 + 13
"""What a shell says of a program that SIGPIPE ended."""
OWN_ERROR = 125
_STEP_S = 0.2
_promised = SimpleNamespace(json=False, detail=False)
"""Of this process, which runs one command."""


def say(text: str, *, err: bool = False) -> None:
    from palyra.cli.render import visible

    click.echo(visible(text), err=err)


def say_error(sentence: str, hint: str | None = None) -> None:
    """The two lines of every error; whatever stands in them, they stay two."""
    from palyra.cli.render import visible_line

    click.echo(f"palyra: {visible_line(sentence)}", err=True)
    if hint:
        click.echo(f"hint: {visible_line(hint)}", err=True)


def say_failure(code: str, sentence: str, hint: str | None = None) -> None:
    """An error that ends a command: the two lines, and after --json the one JSON value that a reader waits for."""
    if _promised.json:
        say_json_error(code, sentence, hint)
    say_error(sentence, hint)


def say_refusal(code: str, sentence: str, hint: str | None = None) -> None:
    """The same with a code of the contract, which stands in the first line too."""
    if _promised.json:
        say_json_error(code, sentence, hint)
    say_error(f"{code}: {sentence}", hint)


def say_unwritten(error: OSError, hint: str) -> int:
    """Its exit code. Quiet where a reader went away, which is nobody's error; else what was printed is not where it was
    to be, and a program's own code must not hide that."""
    if isinstance(error, BrokenPipeError):
        return PIPE_GONE
    with suppress(OSError):  # stderr may be on the same full disk
        say_error(f"The output could not be written: {error.strerror or error}.", hint)
    return OWN_ERROR


def begin_line(last: bytes) -> None:
    """What we say stands on a line of its own at a terminal, also where the program's last one was cut short."""
    if last not in (b"", b"\n") and sys.stderr.isatty():
        click.echo(err=True)


def promise_json() -> None:
    """--json was given: from here on stdout has one JSON value, whatever comes."""
    _promised.json = True


def promise_detail() -> None:
    """--verbose was given: an error says where it happened."""
    _promised.detail = True


def wants_detail() -> bool:
    return bool(_promised.detail)


def say_json_error(code: str, message: str, hint: str | None) -> None:
    import orjson

    with suppress(OSError):  # where stdout is what cannot be written, stderr has the two lines all the same
        click.echo(orjson.dumps({"error": {"code": code, "message": _text(message), "hint": hint and _text(hint)}}))


def _text(text: str) -> str:
    """JSON has no lone surrogates, which is how bytes of an argument that are not UTF-8 come to us."""
    return text.encode("utf-8", "backslashreplace").decode()


def settle_streams() -> None:
    """Give the numbers 0 to 2 and their three Python streams a meaning before anything else is opened."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if fd == 0 else os.O_WRONLY)  # the lowest free number is this one
            os.set_inheritable(fd, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115 - ours until the end
    elif not os.get_blocking(0):
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Waiting(0, "r")), sys.stdin.encoding, sys.stdin.errors)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is not None and not os.get_blocking(fd):
            file = io.BufferedWriter(_Waiting(fd, "w"))
            stream = io.TextIOWrapper(file, stream.encoding, line_buffering=stream.line_buffering)
            setattr(sys, name, stream)
        if stream is None:
            setattr(sys, name, open(fd, "w", encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def flush_streams() -> OSError | None:
    """Why not all of it went out: somebody left before reading it, the disk is full. The interpreter's own flush at
    the end then finds nothing."""
    failed: OSError | None = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            failed = failed or (error if isinstance(error, OSError) else BrokenPipeError())
            drain(stream.fileno())
    return failed


def drain(fd: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(null, fd)
    os.close(null)


def read_stdin(most: int) -> bytes:
    """What comes next, waited for; nothing at its end."""
    while True:
        _wait(0, select.POLLIN)
        if _is_in_background():
            sleep(_STEP_S)
            continue
        try:
            return os.read(0, most)
        except BlockingIOError:
            continue
        except OSError:
            return b""


def write_some(fd: int, data: Any) -> int:
    """How much of it was taken, which is never nothing."""
    while True:
        try:
            return os.write(fd, data)
        except BlockingIOError:
            _wait(fd, select.POLLOUT)


class _Waiting(io.FileIO):
    """A file that does not wait, and that is waited for."""

    def __init__(self, fd: int, mode: str) -> None:
        super().__init__(fd, mode, closefd=False)

    def readinto(self, buffer: Any) -> int:
        while (count := super().readinto(buffer)) is None:
            _wait(self.fileno(), select.POLLIN)
        return count

    def write(self, data: Any) -> int:
        return write_some(self.fileno(), data)


def _wait(fd: int, event: int) -> None:
    ready = select.poll()
    ready.register(fd, event)
    ready.poll()


def _is_in_background() -> bool:
    """Of the terminal that is our stdin. What is none, or not ours, has no background."""
    with suppress(OSError):
        return os.tcgetpgrp(0) != os.getpgrp()
    return False
