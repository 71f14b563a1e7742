"""`palyra sandbox list | explain -- CMD ARG…`: what this host enforces, and what would run where. Runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.engine.trip import Trip
    from palyra.wiring.embedded import Installation


@click.group("sandbox", cls=NounGroup)
def command() -> None:
    """What this host can enforce, and what would run where."""


@command.command("list", epilog="Example: palyra sandbox list --json")
@with_settings
def list_backends(settings: Settings) -> int:
    """Each backend: its tier, whether it works here, what it guarantees, or what is in the way."""
    from palyra.cli.host import probe_host
    from palyra.wiring.checkup import backends_json

    backends: Any = backends_json(probe_host(settings))
    if settings.json:
        click.echo(orjson.dumps({"items": backends, "next": None}))
        return 0
    for backend in backends:
        say(f"tier {backend['tier']}  {backend['backend']}  ({backend['executor']})")
        say("    " + (", ".join(backend["guarantees"]) or "cannot be used here"))
        for blocker in backend["blockers"]:
            say(f"    {blocker['code']}: {blocker['detail']}\n    fix: {blocker['fix']}")
    return 0


@command.command(
    "explain",
    epilog="Example: palyra sandbox explain -- git status",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--workspace", metavar="DIR", help="The workspace (default: the current folder).")
@click.option("--as", "principal", metavar="PRINCIPAL", help="Who would ask.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD ARG...")
@with_settings
def explain(settings: Settings, workspace: str | None, principal: str | None, argv: tuple[str, ...]) -> int:
    """What would run, where, with which argv; nothing is run and nothing is recorded. --json has every field."""
    from palyra.cli.plan_text import plan_lines
    from palyra.cli.session import make_run, with_installation
    from palyra.engine.trip import CallRequest

    async def work(installation: Installation) -> int:
        run = make_run(installation, workspace=workspace, principal=principal)
        request = CallRequest(tool="palyra.process.run", input={"command": argv[0], "args": list(argv[1:])}, run=run)
        trip, refusal = await installation.engine.assess(request)
        shown: dict[str, object] = {
            "refused": None
            if refusal is None
            else {"reason": refusal.reason.value, "message": refusal.detail, "hint": refusal.hint},
            "plan": trip.plan.as_json() if trip.plan is not None else None,
            **_where(installation, trip),
        }
        if settings.json:
            click.echo(orjson.dumps(shown))
        else:
            for line in plan_lines(shown):
                say(line)
        return 0 if refusal is None else 1

    return with_installation(settings, work)


def _where(installation: Installation, trip: Trip) -> dict[str, object]:
    """In a cluster: on a node, or here and why."""
    from palyra.cluster.moving import why_here
    from palyra.model.plan import ProcessPlan

    if not installation.config.cluster.nodes or not isinstance(trip.plan, ProcessPlan):
        return {}
    return {"where": f"where the daemon is: {why}" if (why := why_here(trip.plan)) else "a node of the cluster"}
