"""`palyra run` by a daemon that is up: the flags as the operator's words, the child's streams as they come."""

from __future__ import annotations

import sys
from typing import Any

import click

from palyra.cli.grant_flags import grant_words
from palyra.cli.options import Settings
from palyra.cli.say import begin_line, say_unwritten
from palyra.cli.through_daemon import Shown, attend, is_sendable, own_words, print_outcome
from palyra.cli.words import input_of

INTERRUPTED = 128 + 2


def run_through(daemon: Any, settings: Settings, flags: dict[str, Any]) -> int | None:
    """None: these words cannot be sent, so the home is opened here, and the engine refuses and records them."""
    from palyra.cli.render import change_lines, run_exit_code, unwritten_hint

    shown = Shown()
    body = own_words(flags["workspace"], flags["principal"]) | _words(flags) | {"quiet": settings.json}
    if not is_sendable(body):  # bytes among them
        return None
    outcome = attend(daemon, body, shown=shown, with_stdin=sys.stdin is not None)
    if shown.failed is not None:
        return say_unwritten(shown.failed, unwritten_hint(outcome))
    if outcome.hint:
        begin_line(shown.last)
    print_outcome(settings, outcome)
    for line in () if settings.json else change_lines(outcome):
        click.echo(line, err=True)
    return INTERRUPTED if shown.given_up and outcome.success else run_exit_code(outcome)


def _words(flags: dict[str, Any]) -> dict[str, Any]:
    timeout = flags["timeout"]
    return {
        "tool": "palyra.process.run",
        "input": input_of(flags["argv"]),
        **grant_words(flags),
        "timeout_ms": None if timeout is None else max(1, round(timeout * 1000)),
        "memory_bytes": flags["memory"],
        "max_output_bytes": flags["max_output"],
        "changes": flags["changes"] or None,
    }
