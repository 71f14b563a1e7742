"""`palyra run` and `palyra call` through a daemon that is up: the same streams, questions, signals and exit codes.

Rules: only the home's own daemon, over its Unix socket, where the kernel says who we are; a configuration that was
named by hand, or that changed since the daemon read it, is not the daemon's, so the home is opened here then.

Not here: what a call does (the daemon's engine, the same one), the embedded way (cli/session).
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import click

from palyra.cli.interrupts import heard
from palyra.cli.options import Settings, login_principal
from palyra.cli.say import read_stdin, write_some

CHUNK_BYTES = 64 * 1024
PATIENCE_S = 2.0
"""How long after a signal nobody may have read anything before the rest is given up."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def find_daemon(settings: Settings) -> Any | None:
    """A line to this home's daemon, or None: then the home is opened by this process."""
    if settings.config is not None:
        return None
    from palyra.config.load import find_home

    home = find_home(settings.home).root
    if not (home / "run" / "palyrad.json").exists():
        return None
    from palyra.wiring.daemon_note import find_socket

    path = find_socket(home)
    if path is None:
        return None
    from palyra.client.remote import Daemon
    from palyra.client.wire import parse_place

    return Daemon(parse_place(f"unix:{path}"), token=None)


def own_words(workspace: str | None, principal: str | None) -> dict[str, Any]:
    """What every call of the command line says of itself."""
    from palyra.wiring.clock import SystemClock, SystemIds

    try:
        here = os.path.abspath(workspace or ".")
    except OSError as error:
        raise click.UsageError("The current folder is gone. Name another with --workspace.") from error
    place = {"workspace": here} if workspace else {"default_workspace": here}
    who = principal or login_principal()
    ids = SystemIds(SystemClock())
    return {"call_id": ids.ulid(), "principal": who, "door": "cli", "project": False, **place}


def is_sendable(body: Mapping[str, Any]) -> bool:
    """Words of a command line may hold bytes that are no text; JSON cannot carry them."""
    import orjson

    try:
        orjson.dumps(body)
    except TypeError:
        return False
    return True


class _Interrupted(Exception):
    """A signal came while output was being written to somebody who does not read."""


class Shown:
    """Our own stdout and stderr, written as it comes."""

    def __init__(self) -> None:
        self.failed: OSError | None = None
        self.last = b""
        """The last byte there was."""
        self.given_up = False
        self._writing = False
        self._interrupted = False

    def interrupt(self) -> None:
        """A signal came: patience with whoever reads is over."""
        self._interrupted = True
        if self._writing:
            raise _Interrupted

    def __call__(self, stream: Any, chunk: bytes) -> None:
        if self.failed is not None or self.given_up:
            return
        fd = 1 if stream.value == "stdout" else 2
        self.last = chunk[-1:] or self.last
        view = memoryview(chunk)
        self._writing = True
        try:
            while view:
                # A signal may have come before this reader stood still, and no other will: then nothing waits for it.
                if self._interrupted and not _takes_more(fd):
                    raise _Interrupted
                view = view[write_some(fd, view[: select.PIPE_BUF] if self._interrupted else view) :]
        except _Interrupted:
            self.given_up = True
        except OSError as error:
            self.failed = error
            raise
        finally:
            self._writing = False


def _takes_more(fd: int) -> bool:
    """Within a while: as much as a pipe takes at once, if it takes anything."""
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    return bool(ready.poll(PATIENCE_S * 1000))


def attend(daemon: Any, body: Mapping[str, Any], *, shown: Shown | None, with_stdin: bool) -> Any:
    """The outcome. `shown`: None shows nothing while it runs."""
    from palyra.cli.confirm import at_terminal
    from palyra.client.attend import AttendedCall
    from palyra.client.wire import Unreachable

    shown = shown or Shown()

    def on_output(stream: Any, chunk: bytes) -> None:
        if quiet:
            return
        try:
            shown(stream, chunk)
        except OSError:
            call.cancel()

    quiet = body.get("quiet", False)
    words = {name: value for name, value in body.items() if name != "quiet" and value is not None}
    call = AttendedCall(
        daemon,
        words,
        on_output=on_output,
        read_stdin=_read_stdin if with_stdin else None,
        ask=_ask if at_terminal() is not None else None,
    )

    def end(number: int, frame: FrameType | None) -> None:
        call.cancel()
        shown.interrupt()

    before = {number: signal.signal(number, end) for number in heard(*SIGNALS)}
    try:
        return call.run()
    except Unreachable as error:
        if not error.hint:
            shown_by = f"palyra journal show {body['call_id']}"
            error.advise(f"If it had begun, it ended with the daemon, and {shown_by} has its record.")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read_stdin() -> bytes:
    return read_stdin(CHUNK_BYTES)


def _ask(asked: Mapping[str, Any]) -> bool | None:
    import asyncio

    from palyra.cli.confirm import ask
    from palyra.model.approval import Approval, ApprovalState

    told = asked["approval"]
    approval = Approval(**{**told, "state": ApprovalState(told["state"]), "shown": b"", "seal": b""})
    return asyncio.run(ask(approval, asked["shown"]))


def print_outcome(settings: Settings, outcome: Any) -> None:
    from palyra.cli.render import refusal_lines
    from palyra.protocol.wire import outcome_bytes

    if settings.json:
        sys.stdout.buffer.write(outcome_bytes(outcome) + b"\n")
        sys.stdout.buffer.flush()
    for line in refusal_lines(outcome):
        click.echo(line, err=True)
