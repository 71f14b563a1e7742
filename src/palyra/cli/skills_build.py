"""`palyra skills build [DIR]`: compiles a project in a sandbox, packs it and signs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_author import at_the_bench

if TYPE_CHECKING:
    from palyra.config.load import Home
    from palyra.wiring.skill_bench import Bench
    from palyra.wiring.skill_building import Built

EXAMPLES = """\b
Examples:
  palyra skills build
  palyra skills build acme.echo --key release-key.pem
"""


@click.command("build", epilog=EXAMPLES)
@click.argument("folder", metavar="[DIR]", default=".")
@click.option("--key", metavar="FILE", help="Sign with this key (PEM) instead of the publisher's own in the home.")
@with_settings
def command(settings: Settings, folder: str, key: str | None) -> int:
    """Build the project of a skill into DIR/dist: compiled without network in a tier C sandbox, packed, signed.

    The first build for a publisher makes its key under the home. Nobody trusts that key until an operator says so:
    palyra skills trust add, or install --tofu. The same sources give the same bytes; SOURCE_DATE_EPOCH sets the time.
    """

    given = Path(key) if key else None
    place = Path(os.path.abspath(folder))

    async def work(bench: Bench, home: Home) -> int:
        from palyra.wiring.skill_building import build_project
        from palyra.wiring.skill_keys import publisher_key

        built = await build_project(
            place, bench.workshop, lambda who: publisher_key(home, who, given=given)[0], at_unix_ms=_epoch_ms()
        )
        _tell(settings, built)
        return 0

    return at_the_bench(settings, work)


def _epoch_ms() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 12):
        raise click.UsageError("SOURCE_DATE_EPOCH is not a number of seconds.")
    return int(text) * 1000 if text else None


def _tell(settings: Settings, built: Built) -> None:
    from palyra.skills.bundle import public_text

    public = public_text(built.key.public)
    if settings.json:
        click.echo(orjson.dumps({**built.as_json(), "public_key": public}))
        return
    if settings.quiet:
        return
    manifest = built.project.manifest
    say(f"{built.path}")
    say(f"  {manifest.skill_id} {manifest.version}, {built.size_bytes} bytes, built by {built.compiled.tool}")
    say(f"  payload {built.payload_sha256}")
    say(f"  signed by {manifest.publisher} with key {built.key.key_id} ({public})")
