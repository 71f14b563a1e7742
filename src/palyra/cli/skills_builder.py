"""`palyra skills propose TEXT | candidates | promote ID`: the builder, experimental and off by default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_author import explained, program_path

if TYPE_CHECKING:
    from palyra.wiring.embedded import Installation
    from palyra.wiring.skill_builder import SkillBuilder

PROPOSE_EXAMPLES = """\b
Examples:
  palyra skills propose "fetch the status page of status.example.com and keep a copy"
  palyra skills propose --from-run 01J9ZQ6Z4T2C6M0R4W5X8Y1ABC --id acme.weather
"""


@click.command("propose", epilog=PROPOSE_EXAMPLES)
@click.argument("text", required=False, default="")
@click.option("--id", "skill_id", metavar="ID", default="", help="PUBLISHER.NAME of the skill (default: local.WORDS).")
@click.option("--from-run", metavar="RUN", default="", help="Learn it from what this run did instead.")
@with_settings
def propose(settings: Settings, text: str, skill_id: str, from_run: str) -> int:
    """Make a candidate: a project with minimal capabilities, code, tests and a checklist. None of it runs yet."""
    if bool(text) == bool(from_run):
        raise click.UsageError("Give words, or a run with --from-run.")

    async def work(builder: SkillBuilder, by: str) -> int:
        if from_run:
            candidate = await builder.learn(from_run, by=by, skill_id=skill_id)
        else:
            candidate = await builder.propose(text, by=by, skill_id=skill_id)
        _, files = builder.show(candidate.candidate_id)
        if settings.json:
            click.echo(orjson.dumps({**candidate.as_json(), "files": files}))
        elif not settings.quiet:
            say(f"{candidate.candidate_id}  {candidate.skill_id}  ({candidate.source})")
            say(files["REVIEW.md"])
            say(f"next: palyra skills promote {candidate.candidate_id}")
        return 0

    return _with_builder(settings, work)


@click.command("candidates", epilog="Example: palyra skills candidates --json")
@with_settings
def candidates(settings: Settings) -> int:
    """List the candidates, the newest first."""
    from palyra.cli.tables import say_table

    async def work(builder: SkillBuilder, by: str) -> int:
        found = builder.candidates()
        if settings.json:
            click.echo(orjson.dumps({"items": [one.as_json() for one in found], "next": None}))
            return 0
        rows = [
            (
                one.candidate_id,
                "promoted" if one.promoted_sha256 else "candidate",
                f"{one.skill_id} {one.version}",
                one.wish[:80],
            )
            for one in found
        ]
        say_table(settings, ("CANDIDATE", "STATE", "SKILL", "WISH"), rows, nothing="There are no candidates.")
        return 0

    return _with_builder(settings, work)


@click.command("promote", epilog="Example: palyra skills promote 01J9ZQ6Z4T2C6M0R4W5X8Y1ABC")
@click.argument("candidate_id", metavar="ID")
@with_settings
def promote(settings: Settings, candidate_id: str) -> int:
    """Build a candidate in a sandbox, try its tests, and install it into quarantine for an operator to enable."""

    async def work(builder: SkillBuilder, by: str) -> int:
        promoted = await builder.promote(candidate_id, by=by)
        if settings.json:
            click.echo(orjson.dumps(promoted.as_json()))
        elif not settings.quiet:
            standing = promoted.done.standing
            say(f"{standing.skill_id} {standing.version}: {standing.status.value}")
            say(f"  {len(promoted.verdicts)} recorded inputs passed; payload {promoted.built.payload_sha256}")
            say(f"next, after a review: palyra skills enable {standing.skill_id} --override REASON")
        return 0

    return _with_builder(settings, work)


def _with_builder(settings: Settings, work: Callable[[SkillBuilder, str], Awaitable[int]]) -> int:
    from palyra.cli.session import with_installation
    from palyra.state.person import owner_principal
    from palyra.wiring.skill_builder import SkillBuilder

    async def whole(installation: Installation) -> int:
        return await work(SkillBuilder(installation, path=program_path()), owner_principal())

    return explained(settings, lambda: with_installation(settings, whole))
