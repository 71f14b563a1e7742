"""`palyra token create | list | revoke`: credentials for the daemon. Shown once, kept as a digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say, say_failure

if TYPE_CHECKING:
    from palyra.tokens.rules import Token
    from palyra.tokens.store import TokenStore
    from palyra.wiring.embedded import Installation

MAX_NAMED = 20
MAX_LISTED = 1000
HEADINGS = ("ID", "PRINCIPAL", "ROLE", "STATE", "CREATED", "EXPIRES", "WORKSPACE")


@click.group("token", cls=NounGroup)
def command() -> None:
    """Make, list and revoke the daemon's tokens."""


@command.command(
    "create",
    epilog="\b\nExamples:\n  palyra token create --principal agent:builder --workspace /srv/project\n"
    "  palyra token create --principal user:alice --operator --expires 3600",
)
@click.option("--principal", required=True, metavar="P", help="Who uses it: agent:NAME or user:NAME.")
@click.option(
    "--operator", is_flag=True, help="Make an operator's token, which may decide approvals and change policies."
)
@click.option("--workspace", metavar="DIR", help="Limit its calls to this folder.")
@click.option("--expires", type=click.IntRange(1, 366 * 24 * 3600), metavar="S", help="Seconds (default: 30 days).")
@with_settings
def create(settings: Settings, principal: str, operator: bool, workspace: str | None, expires: int | None) -> int:
    """Make a token; it is printed once, on stdout."""
    from palyra.cli.session import with_installation
    from palyra.wiring.places import resolve_workspace

    async def work(installation: Installation) -> int:
        token, secret = await store_of(installation).create(
            principal=principal,
            operator=operator,
            by=_me(),
            workspace=resolve_workspace(workspace) if workspace else "",
            lifetime_ms=None if expires is None else expires * 1000,
        )
        from palyra.cli.tables import moment

        if settings.json:
            shown = {
                "id": token.token_id,
                "token": secret,
                "principal": token.principal,
                "operator": token.operator,
                "workspace": token.workspace or None,
                "expires_at_unix_ms": token.expires_unix_ms,
            }
            click.echo(orjson.dumps(shown))
        else:
            say(secret)
            if not settings.quiet:
                until = moment(token.expires_unix_ms)
                say(
                    f"It is shown only once. Valid until {until} UTC, or until: palyra token revoke {token.token_id}",
                    err=True,
                )
        return 0

    return with_installation(settings, work)


@command.command("list", epilog="Example: palyra token list --json")
@with_settings
def list_command(settings: Settings) -> int:
    """Tokens of this home, newest first: whose, since when, until when. The secrets themselves are not stored."""
    from palyra.cli.session import with_installation
    from palyra.cli.tables import say_table

    async def work(installation: Installation) -> int:
        now = installation.ports.clock.now_unix_ms()
        found = store_of(installation).list(count=MAX_LISTED)
        if settings.json:
            click.echo(orjson.dumps({"items": [token.as_json() for token in found], "next": None}))
            return 0
        say_table(settings, HEADINGS, [_row(token, now) for token in found], nothing="There are no tokens.")
        return 0

    return with_installation(settings, work)


@command.command("revoke", epilog="Example: palyra token revoke 01J…")
@click.argument("id")
@with_settings
def revoke(settings: Settings, id: str) -> int:
    """Revoke a token, from the next request on. Whatever its principal has started keeps running, and is listed."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        store = store_of(installation)
        if store.by_id(id) is None:
            say_failure("NOT_FOUND", f"There is no token {id[:40]!r}.", "palyra token list")
            return 1
        token = await store.revoke(id, by=_me())
        if settings.json:
            click.echo(orjson.dumps(token.as_json()))
        await _tell_what_goes_on(settings, installation, token.principal)
        return 0

    return with_installation(settings, work)


async def _tell_what_goes_on(settings: Settings, installation: Installation, principal: str) -> None:
    """Whoever takes a token back in a hurry must not think that nothing of its holder runs any more."""
    if settings.quiet:
        return
    from palyra.cli.render import visible_line

    calls = sum(call.principal == principal for call in await installation.journal.open_calls())
    if calls:
        say(
            f"palyra: {calls} calls of {principal} are still running: palyra journal tail --principal {principal}",
            err=True,
        )
    running = [one for one in await installation.background.running() if one.owner.principal == principal]
    for process in running[:MAX_NAMED]:
        line = f"palyra: {process.command} of {principal} keeps running; stop it with: palyra stop {process.process_id}"
        say(visible_line(line), err=True)
    if len(running) > MAX_NAMED:
        say(f"palyra: and {len(running) - MAX_NAMED} more: palyra ps", err=True)


def _row(token: Token, now_unix_ms: int) -> tuple[str, ...]:
    from palyra.cli.tables import moment

    return (
        token.token_id,
        token.principal,
        "operator" if token.operator else "agent",
        "holds" if token.holds(now_unix_ms) else "revoked" if token.revoked_unix_ms else "expired",
        moment(token.created_unix_ms),
        moment(token.expires_unix_ms),
        token.workspace or "any",
    )


def store_of(installation: Installation) -> TokenStore:
    from palyra.wiring.tokens import make_tokens

    return make_tokens(installation)


def _me() -> str:
    from palyra.state.person import owner_principal

    return owner_principal()
