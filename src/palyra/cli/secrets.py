"""`palyra secrets set NAME | list | delete NAME`: the vault. A value comes on stdin and is never shown again."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.interrupts import ask
from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say_failure
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.model.credential import Binding, Scope, SecretFacts
    from palyra.wiring.embedded import Installation

MAX_STDIN_BYTES = 64 * 1024 + 2


@click.group("secrets", cls=NounGroup)
def command() -> None:
    """Keep secrets: encrypted in the home, redacted from all output, added to requests outside the sandbox."""


SET_EXAMPLES = """\b
Examples:
  palyra secrets set FORGE_TOKEN < token.txt
  palyra secrets set FORGE_TOKEN --host api.example.com --prefix 'Bearer ' < token.txt
"""


@command.command("set", epilog=SET_EXAMPLES)
@click.argument("name")
@click.option("--host", metavar="HOST[:PORT]", help="Add it to requests to this host, and to no other.")
@click.option("--header", metavar="NAME", help="In this header of them (default: Authorization).")
@click.option("--prefix", metavar="TEXT", help="Text to put before the value, such as 'Bearer '.")
@click.option(
    "--scope",
    metavar="KIND=PATTERN",
    multiple=True,
    help="Who may use it: principal=agent:ci-*, tool=palyra.http.*. Repeat it for more. Default: everyone.",
)
@with_settings
def set_secret(
    settings: Settings, name: str, host: str | None, header: str | None, prefix: str | None, scope: tuple[str, ...]
) -> int:
    """Store a secret, or a new version of one, which keeps its host, header, prefix and scope unless others are given.

    The value is read from stdin; one newline at its end is dropped.
    """
    from palyra.config.credentials import check_name
    from palyra.errors import ConfigError

    try:
        check_name(name)
    except ConfigError as error:
        raise click.UsageError(f"{error.detail} {error.hint}") from error
    if not host and (header is not None or prefix is not None):
        raise click.UsageError("--header and --prefix say how it is sent to a host: name that with --host.")
    scopes = _scope(scope)

    async def work(installation: Installation) -> int:
        try:
            value = _value()
            if not value:
                say_failure("BAD_ARGUMENTS", "There was no value on stdin.", f"palyra secrets set {name} < FILE")
                return 1
            before = next((one.binding for one in installation.vault.list() if one.name == name), None)
            binding = _binding(host, header, prefix, before) if host else None
            facts = await installation.vault.set(name, value, scope=scopes, binding=binding, actor=owner_principal())
        except ConfigError as error:  # the value, the name or the binding cannot be kept
            say_failure("BAD_ARGUMENTS", error.detail, error.hint)
            return 1
        _tell(settings, facts)
        return 0

    return _with_vault(settings, work)


@command.command("list", epilog="Example: palyra secrets list --json")
@with_settings
def list_secrets(settings: Settings) -> int:
    """Names, versions, scopes and hosts; never values."""
    from palyra.cli.tables import say_table

    async def work(installation: Installation) -> int:
        found = installation.vault.list()
        if settings.json:
            click.echo(orjson.dumps({"items": [facts.as_json() for facts in found], "next": None}))
            return 0
        rows = [(one.name, str(one.version), _bound(one.binding), _scoped(one.scope)) for one in found]
        say_table(settings, ("NAME", "VERSION", "SENT AS", "ONLY FOR"), rows, nothing="No secrets are kept.")
        return 0

    return _with_vault(settings, work)


@command.command("delete", epilog="Example: palyra secrets delete FORGE_TOKEN")
@click.argument("name")
@with_settings
def delete_secret(settings: Settings, name: str) -> int:
    """Delete a secret from the vault. Copies of the vault file still hold it, so change it where it is used as well."""

    async def work(installation: Installation) -> int:
        if not await installation.vault.delete(name, actor=owner_principal()):
            say_failure("NOT_FOUND", f"There is no secret {name[:80]!r}.", "palyra secrets list shows them all.")
            return 1
        if settings.json:
            click.echo(orjson.dumps({"name": name, "deleted": True}))
        elif not settings.quiet:
            click.echo(f"{name} deleted")
        return 0

    return _with_vault(settings, work)


def _with_vault(settings: Settings, work: Callable[[Installation], Awaitable[int]]) -> int:
    from palyra.cli.session import with_installation

    return with_installation(settings, work, ask_passphrase=lambda: _ask(settings))


def _ask(settings: Settings) -> str:
    """On the terminal itself: stdin holds the value. Twice for a new vault, which a slip would lock for ever."""
    from palyra.config.load import find_home

    passphrase = ask("Passphrase of the vault: ")
    is_new = not (find_home(settings.home).root / "vault" / "secrets.json").exists()
    if is_new and ask("Again: ") != passphrase:
        raise click.UsageError("The passphrases do not match.")
    return passphrase


def _binding(host: str, header: str | None, prefix: str | None, before: Binding | None) -> Binding:
    """For the host it was bound to, what is not given stays: a header without its `Bearer ` is refused everywhere."""
    from palyra.model.credential import Binding

    kept = before if before is not None and before.host == host else Binding(host=host, header="Authorization")
    return Binding(
        host=host,
        header=kept.header if header is None else header,
        prefix=kept.prefix if prefix is None else prefix,
    )


def _scope(given: tuple[str, ...]) -> Scope | None:
    from palyra.model.credential import Scope

    found: dict[str, list[str]] = {"principal": [], "tool": []}
    for text in given:
        kind, equals, pattern = text.partition("=")
        if kind not in found or not equals or not pattern:
            raise click.UsageError(f"--scope {text!r} is neither principal=PATTERN nor tool=PATTERN.")
        found[kind].append(pattern)
    return Scope(principals=tuple(found["principal"]), tools=tuple(found["tool"])) if given else None


def _value() -> bytes:
    if sys.stdin.isatty():
        return ask("Value: ").encode("utf-8", "surrogateescape")
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES)
    return data.removesuffix(b"\n").removesuffix(b"\r")


def _tell(settings: Settings, facts: SecretFacts) -> None:
    if settings.json:
        click.echo(orjson.dumps(facts.as_json()))
    elif not settings.quiet:
        bound, scoped = _bound(facts.binding), _scoped(facts.scope)
        words = (facts.name, f"version {facts.version}", bound, f"only {scoped}" if scoped else "")
        click.echo("  ".join(word for word in words if word))


def _bound(binding: Binding | None) -> str:
    return f"{binding.header} for {binding.host}" if binding else ""


def _scoped(scope: Scope) -> str:
    return ", ".join((*scope.principals, *scope.tools))
