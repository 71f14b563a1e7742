"""`palyra policy allow CALL_ID | disallow ID`: an exception for one refused call, and taking it back.

An exception is a file of its own in the home's policies folder and adds to every other. Not here: making it
(wiring/exceptions), what it says (policy/exceptions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_error
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.policy.scan import PolicyError
    from palyra.wiring.embedded import Installation

MAX_SHOWN = 20
ALLOW_EPILOG = """\b
--for says how much is allowed, always in the same tier and egress mode:
  call      exactly this input, from this principal, in any run (the default)
  program   every call of the same programs, from this principal; of a tool without a program, of the tool
  run       the same as program, within this call's run only (each palyra run is a run of its own)
  always    the same as program, from every principal
The wider three are refused where the refusal rests on more than the programs: hosts, paths, what a run did before.
They cover calls that do no more: no background, network or files that others obey, where the call had none.
An exception lifts only the policies that refused this call, none that is @final, and nothing of the sandbox.

\b
Examples:
  palyra policy allow 01J… --dry-run
  palyra policy allow 01J… --for program
"""


@click.command("allow", epilog=ALLOW_EPILOG)
@click.argument("call_id", metavar="CALL_ID")
@click.option(
    "--for",
    "scope",
    type=click.Choice(["call", "program", "run", "always"]),
    default="call",
    help="How much the exception covers.",
)
@click.option("--dry-run", is_flag=True, help="Show the exception and what it would change; change nothing.")
@with_settings
def allow(settings: Settings, call_id: str, scope: str, dry_run: bool) -> int:
    """Make an exception for a refused call. Shows first which recorded calls would be decided otherwise."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.policy.scan import PolicyError
        from palyra.wiring.exceptions import allow_call

        try:
            made = await allow_call(installation, call_id, scope, by=owner_principal(), dry_run=dry_run)  # type: ignore[arg-type]
        except PolicyError as error:
            return _bad(settings, error)
        if settings.json:
            click.echo(orjson.dumps({"ok": True, **made}))
        else:
            _tell(made)
        return 0

    return with_installation(settings, work)


@click.command("disallow", epilog="Example: palyra policy disallow allow.01J…")
@click.argument("id", metavar="ID")
@with_settings
def disallow(settings: Settings, id: str) -> int:
    """Take an exception back; palyra policy show lists them. Running calls go on to their end."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.policy.scan import PolicyError
        from palyra.wiring.exceptions import disallow as take_back

        try:
            done = await take_back(installation, id, by=owner_principal())
        except PolicyError as error:
            return _bad(settings, error)
        if settings.json:
            click.echo(orjson.dumps({"ok": True, **done}))
        else:
            say(f"taken back: {done['id']}")
        return 0

    return with_installation(settings, work)


def _tell(made: dict[str, Json]) -> None:
    replay = made["replay"]
    for item in replay["items"][:MAX_SHOWN]:
        say(f"  {item['call_id']}  {item['principal']}  {item['was']['effect']} → {item['now']['effect']}")
    if len(replay["items"]) > MAX_SHOWN:
        say(f"  … and {len(replay['items']) - MAX_SHOWN} more: --json")
    say(f"{replay['flips']} of {replay['calls']} recorded calls would be decided otherwise")
    if made["note"]:
        say(f"note: {made['note']}")
    if made["dry_run"]:
        say(f"would write {made['file']}:\n{made['text']}", err=False)
        return
    lifts = f", lifting {', '.join(made['lifts'])}" if made["lifts"] else ""
    say(f"allowed: {made['id']}, for {made['scope']}{lifts}. Repeat the call, with a new call_id if it had one.")
    say(f"To take it back: palyra policy disallow {made['id']}")


def _bad(settings: Settings, error: PolicyError) -> int:
    if settings.json:
        click.echo(orjson.dumps({"ok": False, "error": error.detail, "hint": error.hint}))
    say_error(error.detail, error.hint)
    return 1
