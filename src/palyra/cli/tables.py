"""A list as people read it: one line of headings, one line a thing, columns under each other. At a terminal that is too
narrow for that, a thing goes on in the next line, indented, each column still under its heading.

Rules: every cell is one visible line, whatever a caller named his things; where there is nothing, a sentence on stderr
says so, and stdout stays empty for whoever counts lines. Machines ask with --json.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size

import click

from palyra.cli.options import Settings
from palyra.cli.render import visible_line

INDENT = "    "


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]], *, columns: int | None = None) -> list[str]:
    """`columns` of the terminal, where it is one."""
    shown = [tuple(headings), *(tuple(visible_line(cell) for cell in row) for row in rows)]
    widths = [max(len(row[at]) for row in shown) for at in range(len(headings))]
    folds, lines = _folds(widths, columns), []
    for row in shown:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        first, *more = ("  ".join(cells[begin:end]).rstrip() for begin, end in folds)
        lines += [first, *(f"{INDENT}{line}" for line in more if line)]
    return lines


def _folds(widths: Sequence[int], columns: int | None) -> list[tuple[int, int]]:
    """Which columns stand in one line: (first, behind the last)."""
    folds, begin, length = [], 0, 0
    for at, width in enumerate(widths):
        if columns is not None and at > begin and length + width > columns:
            folds.append((begin, at))
            begin, length = at, len(INDENT)
        length += width + 2
    return [*folds, (begin, len(widths))]


def say_table(settings: Settings, headings: Sequence[str], rows: Sequence[Sequence[str]], *, nothing: str) -> None:
    if not rows and not settings.quiet:
        click.echo(nothing, err=True)
    columns = get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(headings, rows, columns=columns) if rows else ():
        click.echo(line)


def moment(unix_ms: int | None) -> str:
    """A time in a cell; all of them are UTC."""
    return "" if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
