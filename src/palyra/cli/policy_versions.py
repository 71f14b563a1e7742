"""`palyra policy use DIR | rollback | versions`: the operator's policies as versions that can be gone back to.

Rules: what is to be used is checked whole first, in a process of its own; a version that is not good never replaces one
that is. The pointer and its journal entry commit together. Not here: what a version is (wiring/versions).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, login_principal, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.policy.bundle import PolicyBundle
    from palyra.policy.scan import PolicyError
    from palyra.wiring.embedded import Installation


@click.command("use", epilog="\b\nExamples:\n  palyra policy use ./policies\n  palyra policy use 3f9a1c20")
@click.argument("source", metavar="DIR|VERSION")
@with_settings
def use(settings: Settings, source: str) -> int:
    """Check policies and use them from now on, in every process of this home. Exit 1 and no change if they are bad."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.policy.scan import PolicyError

        try:
            files = files_of(installation, source)
            bundle = checked(installation, files)
        except PolicyError as error:
            return _bad(settings, error)
        version, receipt = await installation.versions.install(files, policy_sha256=bundle.digest, by=login_principal())
        installation.policies.current()
        return _tell(settings, bundle, version, changed=receipt is not None)

    return with_installation(settings, work)


@click.command("rollback", epilog="Example: palyra policy rollback")
@with_settings
def rollback(settings: Settings) -> int:
    """Go back to the policies that were in use before. Exit 1, and no change, when there are none or they are bad."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.policy.load import read_folder
        from palyra.policy.scan import PolicyError

        now = installation.versions.use()
        target = installation.versions.before(now)
        if target is None:
            return _bad(settings, PolicyError("There are no policies to go back to.", "palyra policy versions"))
        try:
            version = target.version
            files = read_folder(installation.home.policies) if version is None else installation.versions.files(version)
            bundle = checked(installation, dict(files))
        except PolicyError as error:
            return _bad(settings, error)
        await installation.versions.roll_back(now, policy_sha256=bundle.digest, by=login_principal())
        return _tell(settings, bundle, version, changed=True)

    return with_installation(settings, work)


@click.command("versions", epilog="Example: palyra policy versions --json")
@with_settings
def versions(settings: Settings) -> int:
    """Every use of policies, the newest first; the one in use is marked."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        current = installation.versions.use().number
        uses = installation.versions.uses()
        items = [
            {"number": number, "version": version, "at_unix_ms": at, "by": by, "in_use": number == current}
            for number, version, at, by in uses
        ]
        if settings.json:
            click.echo(orjson.dumps({"items": items, "next": None}))
            return 0
        for number, version, at, by in uses:
            when = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if at else "the beginning"
            name = version[:16] if version else "the policies folder"
            say(f"{'*' if number == current else ' '} {number:>3}  {name:<20}  {when}  {by}")
        return 0

    return with_installation(settings, work)


def files_of(installation: Installation, source: str) -> dict[str, str]:
    """A folder, a file, or an installed version by the beginning of its name. Raises PolicyError."""
    from palyra.policy.load import read_source

    path = Path(source)
    version = None if path.exists() else installation.versions.find(source)
    return read_source(path) if version is None else dict(installation.versions.files(version))


def checked(installation: Installation, files: dict[str, str]) -> PolicyBundle:
    """These policies beside the configured posture: tried in a child, then loaded here. Raises PolicyError."""
    from palyra.policy.store import load_posture, try_in_child

    posture = installation.config.posture
    if files:
        try_in_child(posture, files)
    return load_posture(posture, files)


def _bad(settings: Settings, error: PolicyError) -> int:
    if settings.json:
        click.echo(orjson.dumps({"ok": False, "error": error.detail, "hint": error.hint}))
    else:
        say(f"{error.detail}\nhint: {error.hint or 'mend the file; the policies in use stay as they are'}")
    return 1


def _tell(settings: Settings, bundle: PolicyBundle, version: str | None, *, changed: bool) -> int:
    if settings.json:
        value = {"ok": True, "version": version, "policy_sha256": bundle.digest, "changed": changed}
        click.echo(orjson.dumps(value))
        return 0
    name = f"version {version[:16]}" if version else "the policies folder"
    say(f"{'now in use' if changed else 'in use already'}: {name}, {len(bundle.index)} policies ({bundle.digest[:16]})")
    return 0
