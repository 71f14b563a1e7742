"""`palyra skills trust add | list | revoke | rotate | handover`: whose signatures count. Exit 1 when it is refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_session import tell_refusal, with_desk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palyra.canon import Json
    from palyra.wiring.skill_acts import SkillDesk

_FILE = click.Path(exists=True, dir_okay=False)
MAX_KEY_BYTES = 4096


@click.group("trust", cls=NounGroup)
def command() -> None:
    """Publishers' keys: whose signatures count here, and for whom."""


@command.command("add", epilog="Example: palyra skills trust add acme 3q2+7w…=")
@click.argument("publisher")
@click.argument("key", metavar="KEY|FILE")
@click.option(
    "--days", type=click.IntRange(1, 36_500), metavar="N", help="Trust it for this many days (default: until revoked)."
)
@with_settings
def add(settings: Settings, publisher: str, key: str, days: int | None) -> int:
    """Pin a publisher's public key: base64, hex, or a file that holds it. Check it with the publisher first."""

    async def work(desk: SkillDesk, by: str) -> int:
        from palyra.wiring.clock import SystemClock

        until = None if days is None else SystemClock().now_unix_ms() + days * 86_400_000
        found = await desk.trust_add(publisher, _key_text(key), by=by, valid_until_unix_ms=until)
        if settings.json:
            click.echo(orjson.dumps(found))
        elif not settings.quiet:
            say(f"Key {found['key_id']} is trusted for {found['publisher']}.")
        return 0

    return with_desk(settings, work)


@command.command("list", epilog="Example: palyra skills trust list --json")
@with_settings
def list_command(settings: Settings) -> int:
    """Every pinned key, including revoked ones."""
    from palyra.cli.tables import say_table

    async def work(desk: SkillDesk, by: str) -> int:
        found = desk.trust_list()
        if settings.json:
            click.echo(orjson.dumps({"items": found, "next": None}))
            return 0
        rows = [(one["publisher"], one["key_id"], _standing(one), one["how"], one["added_by"]) for one in found]
        say_table(settings, ("PUBLISHER", "KEY", "STATE", "HOW", "BY"), rows, nothing="No publisher is trusted.")
        return 0

    return with_desk(settings, work)


@command.command(
    "revoke",
    epilog="\b\nExamples:\n  palyra skills trust revoke acme\n  palyra skills trust revoke acme --key 5c37e503e00aeb52",
)
@click.argument("publisher")
@click.option("--key", "key_id", default="", metavar="KEY_ID", help="Only this key (default: all of them).")
@click.option("--reason", default="", metavar="TEXT", help="Recorded in the journal.")
@with_settings
def revoke(settings: Settings, publisher: str, key_id: str, reason: str) -> int:
    """Stop trusting a publisher, or one key. Skills that it signed are quarantined at once."""

    async def work(desk: SkillDesk, by: str) -> int:
        found = await desk.trust_revoke(publisher, by=by, key_id=key_id, reason=reason)
        if settings.json:
            click.echo(orjson.dumps(found))
        elif not settings.quiet:
            say(f"{publisher}: {', '.join(found['revoked'])} revoked.")
            for name in found["quarantined"]:
                say(f"  {name} is quarantined")
        return 0

    return with_desk(settings, work)


@command.command("rotate", epilog="Example: palyra skills trust rotate acme.rotation.json")
@click.argument("file", metavar="FILE", type=_FILE)
@with_settings
def rotate(settings: Settings, file: str) -> int:
    """Accept a publisher's new key from a statement signed by the old one. The old key can then sign nothing new."""
    with Path(file).open("rb") as opened:
        statement = opened.read(MAX_KEY_BYTES).strip()

    async def work(desk: SkillDesk, by: str) -> int:
        found = await desk.trust_rotate(statement, by=by)
        if settings.json:
            click.echo(orjson.dumps(found))
        elif not settings.quiet:
            say(f"Key {found['key_id']} is trusted for {found['publisher']} in place of the one that signed this.")
        return 0

    return with_desk(settings, work)


@command.command(
    "handover", epilog="Example: palyra skills trust handover acme --key old.pem --to NEW_KEY --output acme.json"
)
@click.argument("publisher")
@click.option("--key", required=True, metavar="FILE", type=_FILE, help="The old private key (PEM).")
@click.option("--to", "new", required=True, metavar="KEY|FILE", help="The new public key.")
@click.option("--output", required=True, metavar="FILE", help="Where to write the statement.")
@with_settings
def handover(settings: Settings, publisher: str, key: str, new: str, output: str) -> int:
    """For publishers: a statement by your old key that your new key signs from now on. Users accept it with rotate."""
    from palyra.errors import TrustError
    from palyra.signing import parse_pem
    from palyra.skills.findings import SkillRefused
    from palyra.skills.manifest import check_publisher
    from palyra.skills.trust import parse_public_key, sign_rotation
    from palyra.state.whole import write_whole
    from palyra.wiring.clock import SystemClock

    try:
        old, to = parse_pem(Path(key).read_text("ascii")), parse_public_key(_key_text(new))
        statement = sign_rotation(check_publisher(publisher), old, to, at_unix_ms=SystemClock().now_unix_ms())
    except SkillRefused as refused:
        return tell_refusal(settings, refused.finding.value, refused.detail, refused.hint)
    except (TrustError, UnicodeDecodeError) as error:
        return tell_refusal(settings, "trust.rotation", f"{key} cannot sign: {error}", None)
    write_whole(Path(output), statement + b"\n", mode=0o644)
    if settings.json:
        click.echo(orjson.dumps({"file": output, "old_key_id": old.key_id, "new_key_id": to.key_id}))
    elif not settings.quiet:
        say(f"{output}: {publisher} hands over from {old.key_id} to {to.key_id}.")
    return 0


def _key_text(given: str) -> str:
    """The key itself, or the content of a file of that name. What reads as a key is one: a file that somebody called
    like a publisher's key in the current folder, with another one in it, must not be taken."""
    from palyra.skills.findings import SkillRefused
    from palyra.skills.trust import parse_public_key

    with suppress(SkillRefused):
        parse_public_key(given)
        return given
    if not Path(given).is_file():
        return given
    with Path(given).open("rb") as opened:
        return opened.read(MAX_KEY_BYTES).decode("utf-8", "replace")


def _standing(one: Mapping[str, Json]) -> str:
    revoked, until, after = one["revoked_unix_ms"], one["valid_until_unix_ms"], one["replaced_by"]
    if revoked or after:
        return f"revoked {_day(revoked)}" if revoked else f"replaced by {after}"
    return f"trusted until {_day(until)}" if until else "trusted"


def _day(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d")
