"""A list as people read it: one line of headings, one line a thing, columns under each other.

Rules: every cell is one visible line, whatever a caller named his things; where there is nothing, a sentence on stderr
says so, and stdout stays empty for whoever counts lines. Machines ask with --json.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click

from palyra.cli.options import Settings
from palyra.cli.render import visible_line


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    shown = [tuple(headings), *(tuple(visible_line(cell) for cell in row) for row in rows)]
    widths = [max(len(row[at]) for row in shown) for at in range(len(headings))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]


def say_table(settings: Settings, headings: Sequence[str], rows: Sequence[Sequence[str]], *, nothing: str) -> None:
    if not rows and not settings.quiet:
        click.echo(nothing, err=True)
    for line in table_lines(headings, rows) if rows else ():
        click.echo(line)


def moment(unix_ms: int | None) -> str:
    """A time in a cell; all of them are UTC."""
    return "" if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
