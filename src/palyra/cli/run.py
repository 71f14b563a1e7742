"""`palyra run -- CMD ARG…`: a program in a sandbox, with its own stdin, stdout, stderr and exit code."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from palyra.cli.grant_flags import grant_of, with_grant_flags
from palyra.cli.options import Settings, with_settings
from palyra.late import late

if TYPE_CHECKING:
    from palyra.engine.runs import Run
    from palyra.wiring.embedded import Installation

RUN_OUTPUT_BYTES = 64 << 20
_SIZE = late(r"([0-9]{1,15})([KMG]?)", re.IGNORECASE)
MAX_SECONDS = 24 * 3600
INTERRUPTED = 128 + 2

EPILOG = """\b
Examples:
  palyra run -- ls -la
  palyra run --timeout 5 -- grep -r TODO .
  palyra run --allow-interpreters -- python3 script.py
  palyra run --json -- git --version
  palyra run --learn --allow-interpreters -- make test    what does it need, and what is the smallest grant?

Exit codes: the program's own; 75 waits for an approval, 124 time-out, 125 Palyra's own error, 126 refused,
127 not found, 128+n signal n.
"""


def parse_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = _SIZE.fullmatch(value)
    if match is None:
        raise click.BadParameter("write bytes as a number, or with K, M or G: 512M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def parse_memory(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    from palyra.model.limits import CAPS

    count, (low, high) = parse_size(ctx, param, value), CAPS["memory_bytes"]
    if count is not None and not low <= count <= high:
        raise click.BadParameter(f"write {low >> 20}M to {high >> 30}G")
    return count


def parse_seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    # Written so that nan, which is neither above nor below anything, is refused too.
    if value is not None and not 0.001 <= value <= MAX_SECONDS:
        raise click.BadParameter(f"write seconds from 0.001 to {MAX_SECONDS}")
    return value


@click.command("run", epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("--workspace", metavar="DIR", help="The one folder the program may write (default: the current folder).")
@with_grant_flags
@click.option(
    "--timeout", type=float, callback=parse_seconds, metavar="S", help="Seconds until it is killed (default: 900)."
)
@click.option("--memory", metavar="BYTES", callback=parse_memory, help="Memory limit, e.g. 512M (default: 4G).")
@click.option("--max-output", metavar="BYTES", callback=parse_size, help="Output quota (default: 64M).")
@click.option("--changes", is_flag=True, help="Report which files of the workspace it changed.")
@click.option("--learn", is_flag=True, help="Watch what it is denied, and print the smallest grant that would help.")
@click.option("--as", "principal", metavar="PRINCIPAL", help="Who asks: user:NAME or agent:NAME.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD ARG...")
@with_settings
def command(settings: Settings, **flags: object) -> int:
    """Run a program in a sandbox; transparent stdin, stdout, stderr and exit code."""
    from palyra.cli.through_daemon import find_daemon

    daemon = None if flags["learn"] else find_daemon(settings)
    if daemon is not None:
        from palyra.cli.run_through import run_through

        quota = RUN_OUTPUT_BYTES if flags["max_output"] is None else flags["max_output"]
        code = run_through(daemon, settings, flags | {"max_output": quota})
        if code is not None:
            return code
    from palyra.cli.session import with_installation

    return with_installation(settings, lambda installation: _run(settings, installation, flags))


async def _run(settings: Settings, installation: Installation, flags: dict[str, object]) -> int:
    from palyra.cli.confirm import at_terminal
    from palyra.cli.render import change_lines, run_exit_code, unwritten_hint
    from palyra.cli.say import begin_line, say_unwritten
    from palyra.cli.session import (
        StdinSource,
        call_until_signal,
        make_run,
        print_outcome,
        run_or_refusal,
    )
    from palyra.cli.through import WriteThrough
    from palyra.cli.words import input_of, refuse_no_text
    from palyra.engine.trip import CallRequest

    place, who = _text(flags["workspace"]), _text(flags["principal"])
    run, refusal = run_or_refusal(
        installation, lambda: make_run(installation, workspace=place, principal=who, grant=grant_of(flags))
    )
    call_id = installation.ports.ids.ulid()
    through = WriteThrough(lambda: installation.engine.cancel(call_id))
    request = CallRequest(
        tool="palyra.process.run",
        input=input_of(flags["argv"]),  # type: ignore[arg-type]  # click gives a tuple of words
        run=_with_limits(run, flags),
        call_id=call_id,
        on_output=None if settings.json else through,
        source=StdinSource() if sys.stdin is not None else None,
        confirm=at_terminal(),
        refusal=refusal or refuse_no_text(flags["argv"]),  # type: ignore[arg-type]
        changes=bool(flags["changes"]),
        learn=bool(flags["learn"]),
    )
    outcome = await call_until_signal(installation, request, through)
    if through.failed is not None:
        return say_unwritten(through.failed, unwritten_hint(outcome))
    through.say_lost()
    if outcome.hint:
        begin_line(through.last)
    print_outcome(settings, outcome)
    for line in () if settings.json else change_lines(outcome):
        click.echo(line, err=True)
    if flags["learn"]:
        from palyra.cli.learn import tell_learned

        if unwatched := tell_learned(outcome, flags):
            return unwatched
    return INTERRUPTED if through.lost and outcome.success else run_exit_code(outcome)


def _with_limits(run: Run, flags: dict[str, object]) -> Run:
    """The operator's own flags state the limits of this one call; hard caps still hold."""
    from palyra.model.limits import Limits

    limits = run.limits.as_json() | {
        "output_bytes": flags["max_output"] if flags["max_output"] is not None else RUN_OUTPUT_BYTES
    }
    if flags["timeout"] is not None:
        limits["wall_ms"] = max(1, round(float(flags["timeout"]) * 1000))  # type: ignore[arg-type]
    if flags["memory"] is not None:
        limits["memory_bytes"] = flags["memory"]
    return replace(run, limits=Limits(**limits))  # type: ignore[arg-type]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
