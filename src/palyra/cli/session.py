"""What `run` and `call` share: opening the home, one run, signals, streams, and printing one outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable

import click

from palyra.cli import interrupts
from palyra.cli.options import Settings, login_principal
from palyra.cli.render import refusal_lines
from palyra.cli.say import read_stdin
from palyra.cli.through import WriteThrough
from palyra.config.load import find_home
from palyra.engine.runs import Run, RunScope, start_run
from palyra.engine.trip import CallRequest
from palyra.errors import Rejected
from palyra.model.call import Door, OperatorGrant, RequestContext, parse_principal, parse_ulid
from palyra.model.outcome import Outcome, Status
from palyra.protocol.wire import outcome_bytes
from palyra.wiring.embedded import Installation, open_installation
from palyra.wiring.places import resolve_workspace

CHUNK_BYTES = 64 * 1024


def with_installation(
    settings: Settings,
    work: Callable[[Installation], Awaitable[int]],
    *,
    ask_passphrase: Callable[[], str] | None = None,
) -> int:
    """Open the home, do one thing on an event loop, close the home; the number is the exit code."""

    async def whole() -> int:
        installation = await open_installation(
            find_home(settings.home),
            config_file=settings.config,
            owns_process=True,
            one_call=True,
            ask_passphrase=ask_passphrase,
        )
        try:
            return await work(installation)
        finally:
            await installation.close()

    return interrupts.run(whole())


def find_passphrase(settings: Settings) -> bytes | None:
    """What opens the installation's key, where the configuration names a file that holds it."""
    from palyra.config.load import load_config, read_passphrase

    config, _ = load_config(find_home(settings.home), settings.config)
    return read_passphrase(config)


def make_run(
    installation: Installation,
    *,
    workspace: str | None,
    principal: str | None,
    run_id: str | None = None,
    device: str = "",
    channel: str = "",
    grant: OperatorGrant | None = None,
) -> Run:
    ports = installation.ports
    installation.policies.current()  # a policy file that cannot be used stops us here, with its line, not amid a call
    installation.vault.load()  # nor can output be redacted by what cannot be read
    if run_id:
        from palyra.wiring.ending import run_terms  # only for runs that are named

        run_terms(installation).check_goes_on(parse_ulid(run_id, what="--run"))
    return start_run(
        ports.config,
        run_id=run_id or ports.ids.ulid(),
        context=RequestContext(
            principal=parse_principal(principal or login_principal()), door=Door.CLI, device=device, channel=channel
        ),
        workspace=_absolute(workspace or ports.config.tool_call.process_runner.workspace_root or "."),
        now_unix_ms=ports.clock.now_unix_ms(),
        grant=grant,
        scope=RunScope.OPEN if run_id else RunScope.CALL,
    )


def run_or_refusal(installation: Installation, make: Callable[[], Run]) -> tuple[Run, Rejected | None]:
    """What the flags say, or a run of nobody's in particular under which their refusal is attested and journaled."""
    try:
        return make(), None
    except Rejected as refusal:
        ports = installation.ports
        context = RequestContext(principal=parse_principal(login_principal()), door=Door.CLI)
        now = ports.clock.now_unix_ms()
        run = start_run(ports.config, run_id=ports.ids.ulid(), context=context, workspace="", now_unix_ms=now)
        return run, refusal


def _absolute(folder: str) -> str:
    try:
        absolute = os.path.abspath(folder)
    except OSError as error:
        raise click.UsageError("The current folder is gone. Name another with --workspace.") from error
    return resolve_workspace(absolute)


async def call_until_signal(
    installation: Installation, request: CallRequest, through: WriteThrough | None = None
) -> Outcome:
    """Ctrl-C and SIGTERM end the call, not its record: it is attested and journaled as cancelled.

    They end the wait for whoever reads the output as well.
    """
    loop, heard = asyncio.get_running_loop(), interrupts.heard(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end() -> None:
        installation.engine.cancel(request.call_id or "")
        if through is not None:
            through.interrupt()

    for number in heard:
        loop.add_signal_handler(number, end)
    try:
        outcome = await installation.engine.call(request)
        if through is not None:
            await through.deliver(patient=outcome.status is Status.COMPLETED)
        return outcome
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def print_outcome(settings: Settings, outcome: Outcome) -> None:
    if settings.json:
        sys.stdout.buffer.write(outcome_bytes(outcome) + b"\n")
        sys.stdout.buffer.flush()
    for line in refusal_lines(outcome):
        click.echo(line, err=True)


class StdinSource:
    """Our stdin, read by a thread of its own: regular files cannot be polled, and a terminal may block for ever."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(0)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        threading.Thread(target=self._read, name="palyra-stdin", daemon=True).start()

    async def read(self) -> bytes:
        self._wanted.release()
        return await self._chunks.get()

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            self._wanted.acquire()
            chunk = read_stdin(CHUNK_BYTES)
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the call has ended and the loop is closed
