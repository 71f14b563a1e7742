"""`palyra skills review | enable | disable | quarantine | rollback | remove ID`. Exit 1 when refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from palyra.cli.options import Settings, with_settings
from palyra.cli.skills_session import ID, tell_done, with_desk

if TYPE_CHECKING:
    from palyra.wiring.skill_acts import SkillDesk

ENABLE_EXAMPLES = """\b
Examples:
  palyra skills enable acme.echo
  palyra skills enable acme.echo --version 0.2.0
  palyra skills enable acme.echo --override 'the audit warns of a key; it is a test key'
"""
REVIEW_EXAMPLE = "Example: palyra skills review acme.echo --notes 'source read; reaches api.example.com alone'"
MAX_NOTES = 280
REASON = click.option("--reason", default="", metavar="TEXT", help="Recorded in the journal.")


@click.command("enable", epilog=ENABLE_EXAMPLES)
@ID
@click.option(
    "--override",
    default="",
    metavar="REASON",
    help="The reason to enable it despite a failed audit or a missing review.",
)
@click.option(
    "--version", default="", metavar="V", help="Enable this version; after a rollback, the one rolled back from."
)
@with_settings
def enable(settings: Settings, skill_id: str, override: str, version: str) -> int:
    """Allow calls to a skill's tools, in place of the enabled version: those of a newer version that was never
    enabled, or else of the version enabled last."""

    async def work(desk: SkillDesk, by: str) -> int:
        return tell_done(settings, await desk.enable(skill_id, by=by, override_reason=override, version=version))

    return with_desk(settings, work)


@click.command("review", epilog=REVIEW_EXAMPLE)
@ID
@click.option("--notes", required=True, metavar="TEXT", help="What was looked at; recorded in the journal.")
@click.option("--version", default="", metavar="V", help="Review this version; the default is the one enable takes.")
@with_settings
def review(settings: Settings, skill_id: str, notes: str, version: str) -> int:
    """Record that you reviewed a version of a skill; some skills cannot be enabled before."""
    if not 1 <= len(notes.strip()) <= MAX_NOTES:
        raise click.UsageError(f"--notes must have 1 to {MAX_NOTES} characters.")

    async def work(desk: SkillDesk, by: str) -> int:
        return tell_done(settings, await desk.review(skill_id, by=by, notes=notes.strip(), version=version))

    return with_desk(settings, work)


@click.command("disable", epilog="Example: palyra skills disable acme.echo")
@ID
@REASON
@with_settings
def disable(settings: Settings, skill_id: str, reason: str) -> int:
    """Stop allowing calls to a skill's tools; its running calls are stopped."""

    async def work(desk: SkillDesk, by: str) -> int:
        return tell_done(settings, await desk.disable(skill_id, by=by, reason=reason))

    return with_desk(settings, work)


@click.command("quarantine", epilog="Example: palyra skills quarantine acme.echo --reason 'calls home'")
@ID
@REASON
@with_settings
def quarantine(settings: Settings, skill_id: str, reason: str) -> int:
    """Take a skill out of use and stop its running calls, here and in every other process of this home."""

    async def work(desk: SkillDesk, by: str) -> int:
        return tell_done(settings, await desk.quarantine(skill_id, by=by, reason=reason))

    return with_desk(settings, work)


@click.command("rollback", epilog="Example: palyra skills rollback acme.echo")
@ID
@with_settings
def rollback(settings: Settings, skill_id: str) -> int:
    """Return to the version that was enabled before the current one."""

    async def work(desk: SkillDesk, by: str) -> int:
        return tell_done(settings, await desk.rollback(skill_id, by=by))

    return with_desk(settings, work)


@click.command("remove", epilog="Example: palyra skills remove acme.echo")
@ID
@with_settings
def remove(settings: Settings, skill_id: str) -> int:
    """Remove a skill: every version, its files and its stored data. Its history is kept."""

    async def work(desk: SkillDesk, by: str) -> int:
        return tell_done(settings, await desk.remove(skill_id, by=by))

    return with_desk(settings, work)
