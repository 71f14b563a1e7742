"""`palyra skills install FILE | update FILE`: a package into quarantine, audited. Exit 1 when it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_session import check_lines, read_package, with_desk

if TYPE_CHECKING:
    from palyra.wiring.skill_acts import SkillDesk
    from palyra.wiring.skill_payloads import Done

FILE = click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
DOWNGRADE = click.option("--allow-downgrade", is_flag=True, help="Allow a version older than the installed one.")
EXAMPLES = """\b
Examples:
  palyra skills install acme.echo-0.1.0.palyra-skill
  palyra skills install acme.echo-0.1.0.palyra-skill --tofu
"""


@click.command("install", epilog=EXAMPLES)
@FILE
@click.option("--tofu", is_flag=True, help="Trust the package's own key, if its publisher has none here yet.")
@DOWNGRADE
@with_settings
def install(settings: Settings, file: str, tofu: bool, allow_downgrade: bool) -> int:
    """Install a package whose publisher is trusted. It is audited and stays in quarantine until it is enabled."""

    async def work(desk: SkillDesk, by: str) -> int:
        return _tell(
            settings, await desk.install(read_package(file), by=by, tofu=tofu, allow_downgrade=allow_downgrade)
        )

    return with_desk(settings, work)


@click.command("update", epilog="Example: palyra skills update acme.echo-0.2.0.palyra-skill")
@FILE
@DOWNGRADE
@with_settings
def update(settings: Settings, file: str, allow_downgrade: bool) -> int:
    """Install another version of an installed skill. The enabled version stays in use until you enable the new one."""

    async def work(desk: SkillDesk, by: str) -> int:
        return _tell(settings, await desk.update(read_package(file), by=by, allow_downgrade=allow_downgrade))

    return with_desk(settings, work)


def _tell(settings: Settings, done: Done) -> int:
    if settings.json:
        click.echo(orjson.dumps(done.as_json()))
        return 0
    if settings.quiet:
        return 0
    standing, report = done.standing, done.report
    if done.pinned_key_id:
        say(f"Key {done.pinned_key_id} is trusted for {standing.publisher} from now on, because you said so.")
    if not done.changed:
        say(f"{standing.skill_id} {standing.version} was installed already and is {standing.status.value}.")
        return 0
    say(f"{standing.skill_id} {standing.version} is installed and {standing.status.value}: {standing.reason}")
    if report is not None:
        shown = [check.as_json() for check in report.checks if check.status.value != "pass"]
        for line in check_lines(list(shown)):
            say(line)
    say(f"Look at it: palyra skills show {standing.skill_id}    then: palyra skills enable {standing.skill_id}")
    return 0
