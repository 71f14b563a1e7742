"""`palyra runs list | show | extend | end`: what runs have used of their budgets, more of it from an operator, the end.

A run's end is asked of the home's daemon where one is up: its calls run there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import orjson

from palyra.cli.options import NounGroup, Settings, parse_id, with_settings
from palyra.cli.say import say, say_failure

if TYPE_CHECKING:
    from palyra.wiring.embedded import Installation
    from palyra.wiring.runs import RunView

MAX_LISTED = 100
HEADINGS = ("RUN", "PRINCIPAL", "BEGAN", "CALLS", "WORKSPACE")
MOST = 1 << 40
AMOUNTS = (
    ("wall_us", "--wall", "More wall time, in seconds.", 1_000_000),
    ("cpu_us", "--cpu", "More processor time, in seconds.", 1_000_000),
    ("output_bytes", "--output-bytes", "More output, in bytes.", 1),
    ("egress_bytes", "--egress-bytes", "More network traffic, in bytes.", 1),
    ("fuel", "--fuel", "More WASM fuel.", 1),
)


def _amounts(function: Callable[..., int]) -> Callable[..., int]:
    for name, flag, help, _ in reversed(AMOUNTS):
        function = click.option(flag, name, type=click.IntRange(0, MOST), default=0, metavar="N", help=help)(function)
    return function


@click.group("runs", cls=NounGroup)
def command() -> None:
    """List runs, show what one has used of its budget, extend it, end it."""


@command.command("list", epilog="\b\nExamples:\n  palyra runs list\n  palyra runs list --json")
@click.option("--before", metavar="ID", default=None, callback=parse_id, help="Only runs older than this one.")
@with_settings
def list_command(settings: Settings, before: str | None) -> int:
    """Runs of this home, the newest first."""
    from palyra.cli.session import with_installation
    from palyra.cli.tables import moment, say_table
    from palyra.wiring.runs import LAST

    async def work(installation: Installation) -> int:
        found = installation.runs.list(before=before or LAST, count=MAX_LISTED)
        if settings.json:
            following = found[-1].run_id if len(found) == MAX_LISTED else None
            click.echo(orjson.dumps({"items": [run.as_json() for run in found], "next": following}))
        else:
            rows = [
                (run.run_id, run.principal, moment(run.created_unix_ms), _calls(run), run.workspace) for run in found
            ]
            say_table(settings, HEADINGS, rows, nothing="There are no runs.")
        return 0

    return with_installation(settings, work)


@command.command("show", epilog="Example: palyra runs show 01J…")
@click.argument("id")
@with_settings
def show(settings: Settings, id: str) -> int:
    """What a run has used, what it may use, and what its running calls hold."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        run = installation.runs.find(id)
        if run is None:
            return _unknown(id)
        _print(settings, run)
        return 0

    return with_installation(settings, work)


@command.command("extend", epilog="Example: palyra runs extend 01J… --calls 100 --wall 600")
@click.argument("id")
@click.option("--calls", type=click.IntRange(0, 10**9), default=0, metavar="N", help="More calls.")
@click.option("--attempts", type=click.IntRange(0, 10**9), default=0, metavar="N", help="More refused attempts.")
@_amounts
@click.option("--as", "principal", metavar="PRINCIPAL", help="Who extends it: user:NAME (default: your login).")
@with_settings
def extend(settings: Settings, id: str, calls: int, attempts: int, principal: str | None, **amounts: int) -> int:
    """Raise a run's limits, also while it is running; journaled."""
    from palyra.cli.session import with_installation
    from palyra.model.budget import Spending
    from palyra.model.call import parse_principal
    from palyra.state.person import owner_principal

    by = str(parse_principal(principal)) if principal else owner_principal()
    more = Spending(**{name: amounts[name] * unit for name, _, _, unit in AMOUNTS})
    if not (calls or attempts or any(more.amounts)):
        raise click.UsageError("Say by how much: --calls, --attempts, --wall, --cpu, --output-bytes …")

    async def work(installation: Installation) -> int:
        _print(settings, await installation.runs.extend(id, by=by, calls=calls, attempts=attempts, more=more))
        return 0

    return with_installation(settings, work)


@command.command("end", epilog="\b\nExamples:\n  palyra runs end 01J…\n  palyra runs end 01J… --json")
@click.argument("id")
@with_settings
def end(settings: Settings, id: str) -> int:
    """End a run: it takes no more calls. Calls under way in the daemon are cancelled, background processes that are
    the run's own ended; detached ones go on, and so do calls of other processes. Again, it changes nothing."""
    from palyra.state.person import owner_principal

    if (told := _ask_daemon(settings, id)) is not None:
        _print_ended(settings, told)
        return 0
    from palyra.cli.session import with_installation
    from palyra.wiring.ending import end_run

    async def work(installation: Installation) -> int:
        ended = await end_run(installation, id, by=owner_principal())
        if ended is None:
            return _unknown(id)
        _print_ended(settings, ended.as_json())
        return 0

    return with_installation(settings, work)


def _ask_daemon(settings: Settings, run_id: str) -> dict[str, Any] | None:
    """None where none is up, or where it knows of no such run: then the home is asked, which says so."""
    from palyra.cli.through_daemon import find_daemon
    from palyra.client.wire import Unreachable
    from palyra.client.words import refused
    from palyra.model.call import is_ulid

    daemon = find_daemon(settings) if is_ulid(run_id) else None
    if daemon is None:
        return None
    try:
        status, value = daemon.ask("POST", f"/console/v1/runs/{run_id}/end")
    except Unreachable:
        return None
    finally:
        daemon.close()
    if status in (200, 404):
        return value if status == 200 else None
    raise refused(status, value)


def _unknown(run_id: str) -> int:
    say_failure("NOT_FOUND", f"There is no run {run_id[:40]!r}.", "palyra runs list")
    return 1


def _calls(run: RunView) -> str:
    return f"{run.budget.calls_used} of {run.budget.calls_max}" + (", ended" if run.ended_unix_ms is not None else "")


def _print_ended(settings: Settings, run: dict[str, Any]) -> None:
    if settings.json:
        click.echo(orjson.dumps(run))
    elif not settings.quiet:
        say(f"{run['run_id']} ended")


def _print(settings: Settings, run: RunView) -> None:
    from palyra.cli.tables import moment

    if settings.json:
        click.echo(orjson.dumps(run.as_json()))
        return
    ended = "" if run.ended_unix_ms is None else f"  ended {moment(run.ended_unix_ms)}"
    say(f"{run.run_id}  {run.principal}  {run.workspace}{ended}")
    budget, held = run.budget.as_json(), run.reserved.as_json()
    for name in ("calls", "attempts", *(name for name, *_ in AMOUNTS)):
        used, most = budget[f"{name}_used"] or 0, budget[f"{name}_max"]
        under_way = f", {_amount(name, held[name])} held by calls under way" if held.get(name) else ""
        limit = "no limit" if most is None else _amount(name, most)
        say(f"  {_NAMES.get(name, name):14}{_amount(name, used)} of {limit}{under_way}")


_NAMES = {"wall_us": "wall time", "cpu_us": "processor", "output_bytes": "output", "egress_bytes": "network"}


def _amount(name: str, count: int) -> str:
    """With its unit; time as `--wall` and `--cpu` take it, in seconds."""
    if name.endswith("_us"):
        return f"{count / 1_000_000:g} s"
    return f"{count} bytes" if name.endswith("_bytes") else str(count)
