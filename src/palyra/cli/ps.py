"""`palyra ps`: the background processes of this home, whoever started them: who can open a home is its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, parse_id, with_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palyra.canon import Json
    from palyra.model.process import BackgroundProcess
    from palyra.wiring.embedded import Installation

MAX_LISTED = 100
HEADINGS = ("PROCESS", "STATUS", "PID", "COMMAND", "PRINCIPAL", "STARTED", "EXPIRES")


@click.command("ps", epilog="\b\nExamples:\n  palyra ps\n  palyra ps --all --json")
@click.option("-a", "--all", "everything", is_flag=True, help="Include processes that have ended, newest first.")
@click.option(
    "--before", metavar="ID", default=None, callback=parse_id, help="With --all: only those older than this one."
)
@with_settings
def command(settings: Settings, everything: bool, before: str | None) -> int:
    """List background processes: those that are running; with --all also those that have ended."""
    from palyra.cli.session import with_installation

    if before is not None and not everything:
        raise click.UsageError("--before needs --all; running processes are always shown in full.")

    async def work(installation: Installation) -> int:
        background = installation.background
        if everything:
            found = await background.everything(before=before, count=MAX_LISTED)
        else:
            found = await background.running()
        if settings.json:
            following = found[-1].process_id if everything and len(found) == MAX_LISTED else None
            click.echo(orjson.dumps({"items": [process_json(process) for process in found], "next": following}))
        else:
            _show(settings, found, everything=everything)
        return 0

    return with_installation(settings, work)


def process_json(process: BackgroundProcess) -> dict[str, Json]:
    return {**process.as_json(), "run_id": process.owner.run_id, "principal": process.owner.principal}


def _show(settings: Settings, found: Sequence[BackgroundProcess], *, everything: bool) -> None:
    from palyra.cli.tables import say_table

    nothing = "No background processes." if everything else "No background processes are running."
    say_table(settings, HEADINGS, [_row(process) for process in found], nothing=nothing)


def _row(process: BackgroundProcess) -> tuple[str, ...]:
    from palyra.cli.tables import moment

    return (
        process.process_id,
        _ending(process),
        str(process.pid),
        process.command,
        process.owner.principal,
        moment(process.started_unix_ms),
        moment(process.expires_unix_ms) if process.is_running else "",
    )


def _ending(process: BackgroundProcess) -> str:
    if process.reason is not None:
        return f"{process.status} ({process.reason})"
    if process.exit_code is not None:
        return f"{process.status} ({process.exit_code})"
    return f"{process.status} (signal {process.signal})" if process.signal is not None else process.status.value
