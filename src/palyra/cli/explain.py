"""`palyra explain REASON`: what a code means and what to do about it."""

from __future__ import annotations

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_failure


@click.command("explain", epilog="\b\nExamples:\n  palyra explain INTERPRETER_DENIED\n  palyra explain")
@click.argument("reason", required=False)
@with_settings
def command(settings: Settings, reason: str | None) -> int:
    """What a reason code means and what to do about it; without a code, all of them."""
    from palyra.errors import Reason
    from palyra.model.reasons import REASONS

    chosen = list(Reason)
    if reason is not None:
        if reason.upper() not in set(Reason):
            from difflib import get_close_matches  # only for a code that nobody knows

            near = get_close_matches(reason[:40].upper().replace("-", "_"), list(Reason), n=1)
            hint = f"{f'Did you mean {near[0]}? ' if near else ''}palyra explain lists them all."
            say_failure("BAD_ARGUMENTS", f"There is no reason {reason[:40]!r}.", hint)
            return 1
        chosen = [Reason(reason.upper())]
    if settings.json:
        items = [{"reason": r.value, "meaning": REASONS[r].meaning, "remedy": REASONS[r].remedy} for r in chosen]
        click.echo(orjson.dumps({"items": items, "next": None}))
        return 0
    for code in chosen:
        click.echo(f"{code.value}\n  {REASONS[code].meaning}\n  What to do: {REASONS[code].remedy}")
    return 0
