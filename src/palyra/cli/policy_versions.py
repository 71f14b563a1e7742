"""`palyra policy use DIR | rollback | versions`: the operator's policies as versions that can be gone back to.

Rules: what is to be used is checked whole first, in a process of its own; a version that is not good never replaces one
that is. The pointer and its journal entry commit together. Not here: doing it (wiring/policy_acts).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_error
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.policy.scan import PolicyError
    from palyra.wiring.embedded import Installation
    from palyra.wiring.policy_acts import InUse


@click.command("use", epilog="\b\nExamples:\n  palyra policy use ./policies\n  palyra policy use 3f9a1c20")
@click.argument("source", metavar="DIR|VERSION")
@with_settings
def use(settings: Settings, source: str) -> int:
    """Check policies and use them from now on, in every process of this home. Bad ones: exit 1, nothing changes."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.policy.scan import PolicyError
        from palyra.wiring.policy_acts import use_policies

        try:
            files = files_of(installation, source)
            return _tell(settings, await use_policies(installation, files, by=owner_principal()))
        except PolicyError as error:
            return _bad(settings, error, source)

    return with_installation(settings, work)


@click.command("rollback", epilog="Example: palyra policy rollback")
@with_settings
def rollback(settings: Settings) -> int:
    """Go back to the previous policies. If there are none, or they are bad: exit 1, nothing changes."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.policy.scan import PolicyError
        from palyra.wiring.policy_acts import roll_back_policies

        try:
            return _tell(settings, await roll_back_policies(installation, by=owner_principal()))
        except PolicyError as error:
            return _bad(settings, error)

    return with_installation(settings, work)


@click.command("versions", epilog="Example: palyra policy versions --json")
@with_settings
def versions(settings: Settings) -> int:
    """Every use of policies, the newest first; the one in use is marked."""
    from palyra.cli.session import with_installation
    from palyra.cli.tables import moment, say_table

    async def work(installation: Installation) -> int:
        from palyra.wiring.policy_acts import uses_json

        items = uses_json(installation)
        if settings.json:
            click.echo(orjson.dumps({"items": items, "next": None}))
            return 0
        rows = [
            (
                "*" if item["in_use"] else "",
                str(item["number"]),
                item["version"][:16] if item["version"] else "the policies folder",
                moment(item["at_unix_ms"]) if item["at_unix_ms"] else "the beginning",
                item["by"],
            )
            for item in items
        ]
        say_table(settings, ("", "USE", "VERSION", "SINCE", "BY"), rows, nothing="No policies have been in use yet.")
        return 0

    return with_installation(settings, work)


def files_of(installation: Installation, source: str) -> dict[str, str]:
    """A folder, a file, or an installed version by the beginning of its name. Raises PolicyError."""
    from palyra.policy.load import read_source

    path = Path(source)
    version = None if path.exists() else installation.versions.find(source)
    return read_source(path) if version is None else dict(installation.versions.files(version))


def located(error: PolicyError, source: str | Path | None) -> str:
    """The sentence, with a file of the operator's own by where it lies; a version's files lie nowhere."""
    from palyra.policy.bundle import LOCAL

    if source is None or not error.detail.startswith(LOCAL) or not Path(source).exists():
        return error.detail
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    return f"{folder}/{error.detail.removeprefix(LOCAL)}"


def _bad(settings: Settings, error: PolicyError, source: str | None = None) -> int:
    detail = located(error, source)
    hint = error.hint or "Mend the file; the policies in use stay as they are."
    if settings.json:
        click.echo(orjson.dumps({"ok": False, "error": detail, "hint": hint}))
    say_error(detail, hint)
    return 1


def _tell(settings: Settings, now: InUse) -> int:
    version, bundle = now.version, now.bundle
    if settings.json:
        value = {"ok": True, "version": version, "policy_sha256": bundle.digest, "changed": now.changed}
        click.echo(orjson.dumps(value))
        return 0
    name = f"version {version[:16]}" if version else "the policies folder"
    word = "now in use" if now.changed else "in use already"
    say(f"{word}: {name}, {len(bundle.index)} policies ({bundle.digest[:16]})")
    return 0
