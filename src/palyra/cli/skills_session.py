"""What the commands of `palyra skills` share: opening the home, reading a package, and saying what was refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings
from palyra.cli.say import say, say_error, say_json_error

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.wiring.skill_acts import SkillDesk
    from palyra.wiring.skill_payloads import Done

REFUSED = 1
ID = click.argument("skill_id", metavar="ID")


def with_desk(settings: Settings, work: Callable[[SkillDesk, str], Awaitable[int]]) -> int:
    """Open the home and do one thing as its operator; a refusal is exit 1 and its two lines."""
    from palyra.cli.session import with_installation
    from palyra.skills.findings import SkillRefused
    from palyra.state.person import owner_principal
    from palyra.wiring.embedded import Installation

    async def opened(installation: Installation) -> int:
        try:
            return await work(installation.skills, owner_principal())
        except SkillRefused as refused:
            return tell_refusal(settings, refused.finding.value, refused.detail, refused.hint)

    return with_installation(settings, opened)


def tell_refusal(settings: Settings, code: str, detail: str, hint: str | None) -> int:
    if settings.json:
        say_json_error(code, detail, hint)
    say_error(f"{code}: {detail}", hint)
    return REFUSED


def read_package(file: str) -> bytes:
    """At most what a package may have: a file that only pretends to be one must not fill the memory."""
    from palyra.skills.bundle import MAX_BYTES

    with Path(file).open("rb") as opened:
        return opened.read(MAX_BYTES + 1)


def is_file(text: str) -> bool:
    """A package's file rather than a skill's id, by its spelling alone: a file that somebody called acme.echo in the
    current folder must not be shown in place of the installed skill."""
    from palyra.skills.bundle import EXTENSION

    return text.endswith(EXTENSION) or "/" in text


def tell_done(settings: Settings, done: Done) -> int:
    """One line for a person: where the skill stands now."""
    if settings.json:
        click.echo(orjson.dumps(done.as_json()))
    elif not settings.quiet:
        standing = done.standing
        word = status_word(standing.status.value)
        why = "" if standing.reason == word else f": {standing.reason}"
        say(f"{standing.skill_id} {standing.version} is {word}{why}")
    return 0


def status_word(status: str) -> str:
    """People read `enabled`; in JSON it is `active`."""
    return "enabled" if status == "active" else status


def check_lines(checks: list[Mapping[str, Json]]) -> list[str]:
    marks = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}
    lines = []
    for check in checks:
        lines.append(f"  {marks[check['status']]}  {check['check_id']}: {check['message']}")
        if check["status"] != "pass":
            lines += [f"          {name}: {_short(value)}" for name, value in check["details"].items()]
    return lines


def _short(value: Json) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 160 else text[:159] + "…"
