"""`palyra skills sign FILE --key FILE | verify FILE`: packages as files. Nothing is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_session import read_package, tell_refusal, with_desk

if TYPE_CHECKING:
    from palyra.wiring.skill_acts import SkillDesk

FILE = click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
_KEY_FILE = click.Path(exists=True, dir_okay=False)


@click.command("verify", epilog="Example: palyra skills verify acme.echo-0.1.0.palyra-skill")
@FILE
@with_settings
def verify(settings: Settings, file: str) -> int:
    """Check that a package is intact and signed by a key trusted here for its publisher. Exit 1 if not."""

    async def work(desk: SkillDesk, by: str) -> int:
        skill = desk.verify_file(read_package(file))
        binding = skill.binding
        if settings.json:
            value = {**binding.as_json(), "sha256": skill.payload_sha256, "valid": True}
            click.echo(orjson.dumps(value))
        elif not settings.quiet:
            say(f"{binding.skill_id} {binding.version} is intact.")
            say(f"Signed by key {binding.key_id}, which is trusted for {binding.publisher}.")
            say(f"Payload {skill.payload_sha256}")
        return 0

    return with_desk(settings, work)


@click.command("sign", epilog="Example: palyra skills sign acme.echo-0.1.0.palyra-skill --key release.pem")
@FILE
@click.option("--key", required=True, metavar="FILE", type=_KEY_FILE, help="An Ed25519 private key (PEM).")
@click.option("--output", metavar="FILE", help="Write here instead of replacing FILE.")
@with_settings
def sign(settings: Settings, file: str, key: str, output: str | None) -> int:
    """Sign a package again. Its content stays the same; its earlier signature no longer counts."""
    from palyra.errors import TrustError
    from palyra.signing import parse_pem
    from palyra.skills.bundle import open_parcel, read_untrusted, resign
    from palyra.skills.findings import SkillRefused
    from palyra.state.whole import write_whole
    from palyra.wiring.clock import SystemClock

    try:
        signer = parse_pem(Path(key).read_text("ascii"))
        data = read_package(file)
        read_untrusted(data)
        signed = resign(open_parcel(data), signer, at_unix_ms=SystemClock().now_unix_ms())
    except SkillRefused as refused:
        return tell_refusal(settings, refused.finding.value, refused.detail, refused.hint)
    except (TrustError, UnicodeDecodeError) as error:
        return tell_refusal(
            settings, "artifact.signer", f"{key} cannot sign: {error}", "openssl genpkey -algorithm ed25519"
        )
    target = Path(output or file)
    write_whole(target, signed, mode=0o644)
    if settings.json:
        click.echo(orjson.dumps({"file": str(target), "key_id": signer.key_id}))
    elif not settings.quiet:
        say(f"{target} is signed by key {signer.key_id}.")
    return 0
