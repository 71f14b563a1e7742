"""`palyra approvals …`: what waits for a person, the decision, and the grants. Who can open a home is its operator.

An agent never decides, and nobody decides on a call of their own: neither under the name of `--as` nor of the login.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, login_principal, parse_id, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.approvals.rules import Verdict
    from palyra.approvals.store.desk import ApprovalStore
    from palyra.canon import Json
    from palyra.model.approval import Approval
    from palyra.wiring.embedded import Installation

MAX_LISTED = 100
MAX_WHAT_CHARS = 60
STATES = ("pending", "approved", "denied", "expired", "revoked")
APPROVE_EPILOG = """\b
Examples:
  palyra approvals approve 01J…
  palyra approvals approve 01J… --scope run
  palyra approvals approve 01J… --for 3600 --pattern 'git fetch *'
"""
_NEXT = {"pending": ("approve", "deny"), "approved": ("revoke",), "denied": ("revoke",)}
AS = click.option("--as", "principal", metavar="PRINCIPAL", help="Who decides: user:NAME (default: your login).")


@click.group("approvals", cls=NounGroup)
def command() -> None:
    """See what is waiting for a person; approve, deny, list grants, take a decision back."""


@command.command("list", epilog="\b\nExamples:\n  palyra approvals list\n  palyra approvals list --state denied --json")
@click.option("--state", type=click.Choice([*STATES, "all"]), default="pending", help="Which.")
@click.option("--before", metavar="ID", default=None, callback=parse_id, help="Only requests older than this one.")
@with_settings
def list_command(settings: Settings, state: str, before: str | None) -> int:
    """Requests, newest first: those that are waiting, or others by --state."""
    from palyra.approvals.store.rows import LAST
    from palyra.model.approval import ApprovalState

    states = tuple(ApprovalState) if state == "all" else (ApprovalState(state),)

    async def work(store: ApprovalStore) -> int:
        found = store.list(states=states, before=before or LAST, count=MAX_LISTED)
        _print_list(
            settings, store, found, "Nothing is waiting for a person." if state == "pending" else "No approvals."
        )
        return 0

    return _with_store(settings, work)


@command.command("grants", epilog="Example: palyra approvals grants --json")
@with_settings
def grants(settings: Settings) -> int:
    """Approvals that still allow something."""

    async def work(store: ApprovalStore) -> int:
        _print_list(settings, store, store.grants(), "No grants.", following=False)
        return 0

    return _with_store(settings, work)


@command.command("show", epilog="Example: palyra approvals show 01J…")
@click.argument("id")
@AS
@with_settings
def show(settings: Settings, id: str, principal: str | None) -> int:
    """All of a request: who, the exact argv, folders, hosts, risks, policies, changes since earlier approvals."""
    from palyra.approvals.rules import difference
    from palyra.cli.approval_text import decision_lines, env_lines, history_lines, lines

    async def work(store: ApprovalStore) -> int:
        approval = await store.view(id, by=_by(principal))
        shown, earlier = store.shown(approval), store.earlier(approval)
        changes = difference(store.shown(earlier), shown) if earlier is not None else []
        fatigue = store.fatigue(approval)
        if settings.json:
            value: dict[str, Json] = {
                **approval.summary(),
                "call": dict(shown),
                "earlier_approval_id": earlier.approval_id if earlier is not None else None,
                "changes": changes,
                "fatigue": {name: figures.as_json() for name, figures in fatigue.items()},
            }
            click.echo(orjson.dumps(value))
        else:
            told = (*lines(approval, shown), *decision_lines(approval), *history_lines(fatigue, earlier, changes))
            for line in (*told, *env_lines(shown), *_next_lines(approval)):
                say(line)
        return 0

    return _with_store(settings, work)


@command.command("approve", epilog=APPROVE_EPILOG)
@click.argument("id")
@click.option("--scope", type=click.Choice(["once", "run"]), default="once", help="One call, or the run that asked.")
@click.option("--for", "for_s", type=click.IntRange(1, 30 * 86400), metavar="S", help="Every such call, for S seconds.")
@click.option("--pattern", metavar="WORDS", help="Generalise the arguments: * within a word, ** for all further words.")
@click.option("--reason", "note", default="", metavar="TEXT", help="Kept with the decision.")
@AS
@with_settings
def approve(
    settings: Settings, id: str, scope: str, for_s: int | None, pattern: str | None, note: str, principal: str | None
) -> int:
    """Let exactly this call through, once; more only where --scope, --for or --pattern say so."""
    from palyra.approvals.rules import Verdict
    from palyra.model.approval import Scope
    from palyra.wiring.clock import SystemClock

    if for_s is not None and scope != "once":
        raise click.UsageError("Give either --scope run or --for S.")
    verdict = Verdict(
        approved=True,
        by=_by(principal),
        logins=_logins(),
        scope=Scope.UNTIL if for_s is not None else Scope(scope),
        until_unix_ms=None if for_s is None else SystemClock().now_unix_ms() + for_s * 1000,
        pattern=_words(pattern),
        note=note,
    )
    return _decide(settings, id, verdict)


@command.command("deny", epilog="Example: palyra approvals deny 01J… --reason 'use the staging host'")
@click.argument("id")
@click.option("--reason", "note", default="", metavar="TEXT", help="Shown to the caller.")
@AS
@with_settings
def deny(settings: Settings, id: str, note: str, principal: str | None) -> int:
    """Say no; the same call is refused until the request would have expired, or revoke takes the no back."""
    from palyra.approvals.rules import Verdict

    return _decide(settings, id, Verdict(approved=False, by=_by(principal), logins=_logins(), note=note))


@command.command("revoke", epilog="Example: palyra approvals revoke 01J…")
@click.argument("id")
@AS
@with_settings
def revoke(settings: Settings, id: str, principal: str | None) -> int:
    """Take a decision back: an approval no longer covers anything, a denied call may ask again.

    Running calls continue.
    """

    async def work(store: ApprovalStore) -> int:
        _print(settings, await store.revoke(id, by=_by(principal), logins=_logins()))
        return 0

    return _with_store(settings, work)


def _decide(settings: Settings, id: str, verdict: Verdict) -> int:
    async def work(store: ApprovalStore) -> int:
        _print(settings, await store.decide(id, verdict))
        return 0

    return _with_store(settings, work)


def _with_store(settings: Settings, work: Callable[[ApprovalStore], Awaitable[int]]) -> int:
    from palyra.cli.session import with_installation

    async def opened(installation: Installation) -> int:
        return await work(installation.approvals)

    return with_installation(settings, opened)


def _by(principal: str | None) -> str:
    from palyra.model.call import parse_principal
    from palyra.state.person import owner_principal

    return str(parse_principal(principal)) if principal else owner_principal()


def _logins() -> tuple[str, ...]:
    """Every name this process could have made the call under without --as: LOGNAME is the caller's to set."""
    from palyra.state.person import owner_principal

    return tuple(sorted({login_principal(), owner_principal()}))


def _words(pattern: str | None) -> tuple[str, ...]:
    """Words apart by spaces, or a JSON list of them where one has a space in it."""
    if pattern is None:
        return ()
    words: object = pattern.split()
    if pattern.startswith("["):
        try:
            words = orjson.loads(pattern)
        except orjson.JSONDecodeError as error:
            raise click.UsageError(f"--pattern: {error}.") from error
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise click.UsageError("--pattern takes words, or a JSON list of words.")
    return tuple(words)


def _next_lines(approval: Approval) -> list[str]:
    words = _NEXT.get(approval.state, ())
    return [f"{word:11}palyra approvals {word} {approval.approval_id}" for word in words]


def _print(settings: Settings, approval: Approval) -> None:
    from palyra.cli.approval_text import standing

    if settings.json:
        click.echo(orjson.dumps(approval.summary()))
    elif not settings.quiet:
        say(f"{approval.approval_id} {standing(approval)}")


def _print_list(
    settings: Settings, store: ApprovalStore, found: tuple[Approval, ...], none: str, *, following: bool = True
) -> None:
    from palyra.cli.approval_text import standing
    from palyra.cli.tables import moment, say_table

    if settings.json:
        after = found[-1].approval_id if following and len(found) == MAX_LISTED else None
        click.echo(orjson.dumps({"items": [approval.summary() for approval in found], "next": after}))
        return
    rows = [
        (one.approval_id, moment(one.asked_unix_ms), one.principal, _what(one, store.shown(one)), standing(one))
        for one in found
    ]
    say_table(settings, ("APPROVAL", "ASKED", "PRINCIPAL", "WHAT", "STATE"), rows, nothing=none)


def _what(approval: Approval, shown: Mapping[str, Json]) -> str:
    """The whole command line where it is short; `show` has every word on its own."""
    from palyra.cli.approval_text import quoted

    if approval.program == approval.tool:
        return approval.tool
    words = " ".join(quoted(str(word)) for word in shown.get("argv", ())) or approval.program
    return words if len(words) <= MAX_WHAT_CHARS else f"{words[:MAX_WHAT_CHARS]}…"
