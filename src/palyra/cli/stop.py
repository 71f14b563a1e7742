"""`palyra stop ID…`: end background processes: SIGTERM, two seconds later SIGKILL, the whole tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.wiring.embedded import Installation


@click.command("stop", epilog="\b\nExamples:\n  palyra stop 01J…\n  palyra stop 01J… --json")
@click.argument("id")
@with_settings
def command(settings: Settings, id: str) -> int:
    """Stop a background process. One that has already ended is left as it is."""
    from palyra.cli.logs import unknown
    from palyra.cli.ps import process_json
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        process = await installation.background.find(id)
        if process is None:
            return unknown(id)
        process = await installation.background.stop(process.owner, id, by=owner_principal())
        if settings.json:
            click.echo(orjson.dumps(process_json(process)))
        elif not settings.quiet:
            click.echo(f"{process.process_id} {process.status}")
        return 0

    return with_installation(settings, work)
