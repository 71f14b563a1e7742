"""Filters of `palyra journal tail`: from what was typed to a question, and from an answer to a page."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import click

from palyra.cli.options import Settings
from palyra.journal.lookup import TREE_SIZE
from palyra.journal.search import Question

if TYPE_CHECKING:
    from palyra.cli.journal_home import Reading
    from palyra.model.record import Entry


def make_question(filters: Mapping[str, str | None]) -> Question:
    from palyra.errors import Reason
    from palyra.model.outcome import Status

    names = ("principal", "run_id", "tool", "kind", "text")
    return Question(
        status=_known((filters.get("status") or "").lower(), "--status", Status),
        reason=_known((filters.get("reason") or "").upper(), "--reason", Reason),
        since_unix_ms=_time(filters.get("since"), "--since"),
        until_unix_ms=_time(filters.get("until"), "--until"),
        **{name: filters.get(name) or "" for name in names},
    )


def _time(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    from palyra.cli.journal_witness import now_unix_ms
    from palyra.model.moment import parse_moment

    try:
        return parse_moment(text, now_unix_ms=now_unix_ms())
    except ValueError as error:
        raise click.UsageError(
            f"{option}: {error}; write 2026-01-31, 2026-01-31T12:00, or 90m, 24h, 7d ago."
        ) from error


def _known(text: str, option: str, words: type[StrEnum]) -> str:
    """A word that no entry can have would be answered with "No entries.", which reads like good news."""
    known = [word.value for word in words]
    if not text or text in known:
        return text
    from difflib import get_close_matches

    near = get_close_matches(text, known, n=1)
    said = f"Did you mean {near[0]}?" if near else f"Write one of {', '.join(known)}."
    raise click.UsageError(f"{option}: no entry says {text[:40]!r}. {said}")


def catch_up_quietly(settings: Settings, journal: Reading) -> None:
    """Bring the index up to date where that may be written; otherwise the entries are read one by one."""
    from palyra.cli.journal_witness import open_writer
    from palyra.errors import ConfigError, StateError
    from palyra.state.search import catch_up, indexed_until

    size = journal.query(TREE_SIZE, ())[0][0]
    if not journal.home.is_writable or size - indexed_until(journal.query) < 512:
        return
    with contextlib.suppress(StateError, ConfigError):
        writer = open_writer(settings)
        try:
            catch_up(writer)
        finally:
            writer.close()


def find_page(
    journal: Reading, question: Question, *, count: int, before: int | None
) -> tuple[tuple[Entry, ...], int | None]:
    """Oldest first, and the cursor of the page before it."""
    from palyra.state.search import search

    if not question.asks:
        entries = journal.lookup.tail(count, before=before)
        return entries, entries[0].index if entries and entries[0].index > 0 else None
    page = search(journal.query, question, lookup=journal.lookup, count=count, before=before)
    return tuple(reversed(page.entries)), page.next
