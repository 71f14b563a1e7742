"""`palyra skills list | show FILE|ID | audit FILE|ID`: what there is, what it asks for, what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_session import check_lines, is_file, read_package, status_word, tell_refusal, with_desk

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.wiring.skill_acts import SkillDesk

WHICH = click.argument("which", metavar="FILE|ID")


@click.command("list", epilog="Example: palyra skills list --json")
@click.option("--removed", is_flag=True, help="Include skills that were removed.")
@with_settings
def list_command(settings: Settings, removed: bool) -> int:
    """The installed skills: version, state, and why."""
    from palyra.cli.tables import say_table

    async def work(desk: SkillDesk, by: str) -> int:
        found = desk.list_skills(removed=removed)
        if settings.json:
            click.echo(orjson.dumps({"items": found, "next": None}))
            return 0
        rows = [(one["skill_id"], one["version"], status_word(one["status"]), _remark(one)) for one in found]
        say_table(settings, ("SKILL", "VERSION", "STATE", "WHY"), rows, nothing="No skills are installed.")
        return 0

    return with_desk(settings, work)


def _remark(one: Mapping[str, Json]) -> str:
    why = "" if one["reason"] == status_word(one["status"]) else str(one["reason"])
    waiting = f"({', '.join(one['waiting_versions'])} is in quarantine)" if one["waiting_versions"] else ""
    return " ".join(filter(None, (why, waiting)))


@click.command(
    "show", epilog="\b\nExamples:\n  palyra skills show acme.echo-0.1.0.palyra-skill\n  palyra skills show acme.echo"
)
@WHICH
@with_settings
def show(settings: Settings, which: str) -> int:
    """Explain a package, or an installed skill: what it is, what it asks for, who signed it, what was found."""
    if is_file(which):
        return _show_file(settings, which)

    async def work(desk: SkillDesk, by: str) -> int:
        found = desk.show_skill(which)
        if settings.json:
            click.echo(orjson.dumps(found))
        else:
            _print_skill(found)
        return 0

    return with_desk(settings, work)


def _show_file(settings: Settings, file: str) -> int:
    from palyra.skills.bundle import read_untrusted
    from palyra.skills.findings import SkillRefused
    from palyra.wiring.skill_views import package_json

    try:
        found = package_json(read_untrusted(read_package(file)))
    except SkillRefused as refused:
        return tell_refusal(settings, refused.finding.value, refused.detail, refused.hint)
    if settings.json:
        click.echo(orjson.dumps(found))
        return 0
    _print_head(found)
    say(f"Signed by key {found['key_id']}, {found['public_key']}")
    say("Whether that key is trusted here: palyra skills verify FILE")
    say(f"Payload {found['sha256']}")
    for one in found["files"]:
        say(f"  {one['bytes']:>9}  {one['path']}")
    return 0


def _print_skill(found: Mapping[str, Json]) -> None:
    _print_head(found)
    word = status_word(found["status"])
    say(f"It is {word}." if found["reason"] == word else f"It is {word}: {found['reason']}")
    say(f"Signed by key {found['key_id']}; installed by {found['installed_by']}.")
    if found["audit"] is not None:
        say(f"Audit: {found['audit']['verdict']}")
        for line in check_lines([check for check in found["audit"]["checks"] if check["status"] != "pass"]):
            say(line)
    for one in found["versions"][1:]:
        say(f"Also {one['version']}, {status_word(one['status'])}: {one['reason']}")


def _print_head(found: Mapping[str, Json]) -> None:
    say(f"{found['skill_id']} {found['version']}, {found['display_name']}, published by {found['publisher']}")
    if found["summary"]:
        say(found["summary"])
    for tool in found["tools"]:
        say(f"  {tool['id']}: {tool['description']}")
    for sentence in found["capability_words"]:
        say(f"  - {sentence}")


@click.command(
    "audit",
    epilog="\b\nExamples:\n  palyra skills audit acme.echo\n  palyra skills audit acme.echo-0.1.0.palyra-skill --json",
)
@WHICH
@with_settings
def audit(settings: Settings, which: str) -> int:
    """Audit a package or an installed skill. An installed skill that fails is quarantined. Exit 1 if anything fails."""

    async def work(desk: SkillDesk, by: str) -> int:
        if is_file(which):
            checks = [check.as_json() for check in await desk.audit_file(read_package(which))]
            standing: dict[str, Json] = {}
        else:
            done = await desk.audit(which, by=by)
            assert done.report is not None  # an audit makes one
            checks = [check.as_json() for check in done.report.checks]
            standing = {"skill_id": done.standing.skill_id, "status": done.standing.status.value}
        failed = any(check["status"] == "fail" for check in checks)
        verdict = "fail" if failed else "warn" if any(check["status"] == "warn" for check in checks) else "pass"
        if settings.json:
            click.echo(orjson.dumps({**standing, "verdict": verdict, "checks": checks}))
        else:
            for line in check_lines(list(checks)):
                say(line)
            say(f"Audit: {verdict}")
        return 1 if failed else 0

    return with_desk(settings, work)
