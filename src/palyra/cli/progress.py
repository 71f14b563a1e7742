"""A bar on stderr while something long is read; only on a terminal, so that a log or a pipe never sees it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
STEP = 4096


def watched(items: Iterable[T], total: int | None, what: str) -> Iterator[T]:
    """The same items; every few thousand of them move the bar."""
    with bar(total, what) as move:
        for number, item in enumerate(items):
            if number % STEP == 0:
                move(number)
            yield item


@contextmanager
def bar(total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """A function that is told how far it is."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
