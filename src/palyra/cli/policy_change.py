"""`palyra policy diff NEW | replay NEW [--since T]`: what other policies would decide, before they are used.

NEW is a folder of policies, a .cedar file, an installed version or the name of a posture. Exit 0 when nothing would be
decided otherwise, 1 when something would and 2 when NEW cannot be used (as `diff` does), so that a pipeline can stop
there and knows why.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_failure

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.policy.bundle import PolicyBundle
    from palyra.wiring.embedded import Installation

SINCE_HELP = "Only calls since then: 2026-11-15, 2026-11-15T09:30, or 90m, 24h, 7d ago."


@click.command(
    "diff", epilog="\b\nExamples:\n  palyra policy diff ./policies\n  palyra policy diff developer --since 7d"
)
@click.argument("new", metavar="NEW")
@click.option("--since", metavar="T", help=SINCE_HELP)
@with_settings
def diff(settings: Settings, new: str, since: str | None) -> int:
    """What NEW would newly allow, ask about or deny: over the examples of both and over the journal's calls."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.wiring.policy_acts import diff_json

        begin = _begin(installation, since)
        if (bundle := _usable(installation, new)) is None:
            return 2
        value = diff_json(installation, bundle, since_unix_ms=begin)
        if settings.json:
            click.echo(orjson.dumps(value))
        else:
            _say_diff(value)
        return 0 if value["same"] else 1

    return with_installation(settings, work)


@click.command(
    "replay", epilog="\b\nExamples:\n  palyra policy replay ./policies\n  palyra policy replay locked --since 24h"
)
@click.argument("new", metavar="NEW")
@click.option("--since", metavar="T", help=SINCE_HELP)
@with_settings
def replay(settings: Settings, new: str, since: str | None) -> int:
    """Decide the journal's recorded requests again under NEW, and list every call that would be decided differently."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.wiring.policy_acts import replay_json

        begin = _begin(installation, since)
        if (bundle := _usable(installation, new)) is None:
            return 2
        value = replay_json(installation, bundle, since_unix_ms=begin)
        if settings.json:
            click.echo(orjson.dumps(value))
        else:
            _say_replay(value)
        return 1 if value["items"] or value["damaged"] else 0

    return with_installation(settings, work)


def _usable(installation: Installation, new: str) -> PolicyBundle | None:
    """None when it cannot be used, which has been said: nothing of ours is wrong, but what was named."""
    from palyra.policy.scan import PolicyError

    try:
        return new_bundle(installation, new)
    except PolicyError as error:
        from palyra.cli.policy_versions import located

        say_failure("POLICY", located(error, new), error.hint)
        return None


def new_bundle(installation: Installation, new: str) -> PolicyBundle:
    """NEW beside the configured posture; a posture's name takes the operator's policies of now along."""
    from palyra.cli.policy_versions import files_of
    from palyra.policy.scan import PolicyError
    from palyra.policy.store import POSTURES
    from palyra.wiring.policy_acts import checked, posture_bundle

    if new in POSTURES and not Path(new).exists():
        return posture_bundle(installation, new)
    try:
        files = files_of(installation, new)
    except PolicyError as error:  # there is nothing of that name, or nothing that can be read
        raise click.UsageError(" ".join(filter(None, (error.detail, error.hint)))) from error
    return checked(installation, files)


def _begin(installation: Installation, since: str | None) -> int:
    return parse_since(since, now_unix_ms=installation.ports.clock.now_unix_ms()) if since else 0


def parse_since(text: str, *, now_unix_ms: int) -> int:
    """A date, a time (UTC unless it says otherwise) or how long ago, as Unix milliseconds."""
    from palyra.model.moment import parse_moment

    try:
        return parse_moment(text, now_unix_ms=now_unix_ms)
    except ValueError:
        raise click.UsageError(f"--since {text!r} is not a time. {SINCE_HELP}") from None


def _say_diff(value: dict[str, Json]) -> None:
    for word, names in value["policies"].items():
        for name in names:
            say(f"policy {word}: {name}")
    for side in ("examples", "journal"):
        for item in value[side]["items"]:
            what = f"{item['principal']} {item['tool']} {item['program']}".rstrip()
            times = f" ({item['count']} calls)" if item["count"] > 1 else ""
            say(f"{item['was']['effect']} → {item['now']['effect']}: {what}{times}, {side}: {item['name']}")
        counts = ", ".join(f"{value[side][name]} {name.replace('_', ' ')}" for name in _COUNTS)
        say(f"{side}: {value[side]['requests']} requests, {counts}")
    if value["journal"]["damaged"]:
        say(f"{len(value['journal']['damaged'])} records are not what was stored: palyra journal verify")


_COUNTS = ("newly_allowed", "newly_asked", "newly_denied")


def _say_replay(value: dict[str, Json]) -> None:
    for item in value["items"]:
        when = datetime.fromtimestamp(item["at_unix_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        now = item["now"]
        why = now["reason"] or ", ".join(now["policies"])
        note = "" if item["exact"] else "  (its record is redacted: not exact)"
        flip = f"{item['was']['effect']} → {now['effect']} ({why})"
        say(f"{item['call_id']}  {when}  {item['principal']}  {item['tool']}  {flip}{note}")
    say(
        f"{value['flips']} of {value['calls']} calls would be decided differently; "
        f"{value['without_request']} never reached policy"
    )
    if value["damaged"]:
        say(f"{len(value['damaged'])} records are not what was stored: palyra journal verify")
