"""`palyra skills test [DIR]`: the built package on its recorded inputs, under the limits it will have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_author import NOT_SO, at_the_bench

if TYPE_CHECKING:
    from palyra.config.load import Home
    from palyra.wiring.skill_bench import Bench


@click.command("test", epilog="Example: palyra skills test acme.echo")
@click.argument("folder", metavar="[DIR]", default=".")
@with_settings
def command(settings: Settings, folder: str) -> int:
    """Run the built package on tests/*.json of its project and compare; exit 1 when anything differs.

    The module runs as it will when it is called: jailed, with the handles and limits of its manifest. Hosts, stored
    values and secrets are those the recorded inputs bring along.
    """

    place = Path(os.path.abspath(folder))

    async def work(bench: Bench, home: Home) -> int:
        from palyra.wiring.skill_bench import try_project

        skill, verdicts = await try_project(place, bench)
        failed = sum(not verdict.passed for verdict in verdicts)
        if settings.json:
            head = {"skill_id": skill.manifest.skill_id, "payload_sha256": skill.payload_sha256}
            items = [verdict.as_json() for verdict in verdicts]
            click.echo(
                orjson.dumps({**head, "passed": len(verdicts) - failed, "failed": failed, "items": items, "next": None})
            )
            return NOT_SO if failed else 0
        for verdict in verdicts:
            if verdict.passed and not settings.quiet:
                say(f"ok    {verdict.name}" + (f"  ({verdict.fuel} fuel)" if verdict.fuel is not None else ""))
            elif not verdict.passed:
                say(f"FAIL  {verdict.name}\n{verdict.diff}")
        if not settings.quiet:
            say(f"{len(verdicts) - failed} passed, {failed} failed")
        return NOT_SO if failed else 0

    return at_the_bench(settings, work)
