"""`palyra journal verify --replay`: every recorded decision made again from its recorded facts.

Rules: read only, from one snapshot; by the very bundle that decided, which is kept under its digest. Where that is no
longer kept the call is named; where retention has removed a call's own record there is nothing to replay.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import click
import orjson

from palyra.cli.options import Settings

if TYPE_CHECKING:
    from palyra.state.db import ReadHome


def tell_replay(settings: Settings, home: ReadHome) -> int:
    """Say what was found; exit code 1 when a decision does not follow from its facts."""
    from palyra.cli.render import visible_line
    from palyra.cli.say import say

    checked, wrong = _check(home)
    if settings.json:
        items = [{"call_id": call_id, "detail": detail} for call_id, detail in wrong]
        click.echo(orjson.dumps({"ok": not wrong, "decisions": checked, "items": items, "next": None}))
        return 1 if wrong else 0
    for call_id, detail in wrong:
        say(visible_line(f"REPLAY: call {call_id}: {detail}"))
    say(f"{checked} decisions were made again; {len(wrong)} differ, or could not be.")
    return 1 if wrong else 0


def _check(home: ReadHome) -> tuple[int, list[tuple[str, str]]]:
    from palyra.errors import StateError
    from palyra.journal.lookup import Lookup
    from palyra.state.db import snapshot
    from palyra.wiring.history import check_decisions

    with snapshot(home.database) as connection:

        def rows(sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
            try:
                return connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise StateError(f"The database cannot be read: {error}.", "Run: palyra journal verify") from error

        return check_decisions(rows, Lookup(rows, home.verifier))
