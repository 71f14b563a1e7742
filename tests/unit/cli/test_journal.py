"""One line for people, whatever an entry says."""

from __future__ import annotations

import time

import click
import pytest

from palyra.cli.journal import _row
from palyra.cli.journal_search import make_question
from palyra.cli.tables import table_lines
from palyra.journal.chain import act_draft, entry_bytes
from palyra.journal.merkle import leaf_hash
from palyra.model.record import Entry
from tests.journaling import NOW, act


def test_a_time_no_calendar_has_is_shown_as_a_number() -> None:
    for at in (2**53 - 1, -(2**53) + 1):
        body = entry_bytes(act(), index=0, sequence=None, at_unix_ms=at)
        assert f"{at} ms" in _row(Entry(0, leaf_hash(body), body), str)


def test_control_and_bidi_characters_are_spelled_out() -> None:
    """What a caller put into a name must not move the reader's cursor, hide a line, or turn it around."""
    for nasty in ("\x1b[2J", "\x1b]0;title\x07", "\u202egnp.exe", "\u2066", "a\rb", "a\nb", "\x9b31m", "\u200f"):
        draft = act_draft(act=f"x{nasty}", actor=f"user:{nasty}", subject=f"home/{nasty}", details={})
        body = entry_bytes(draft, index=0, sequence=None, at_unix_ms=NOW)
        shown = table_lines([""] * 8, [_row(Entry(0, leaf_hash(body), body), str)])[-1]
        assert shown.isprintable() or set(shown) <= {*map(chr, range(32, 127))}
        assert not set(shown) & set(nasty) - set(map(chr, range(32, 127)))


def test_an_entry_that_cannot_be_read_is_a_line_too() -> None:
    row = _row(Entry(7, leaf_hash(b"{"), b"{"), str)
    assert (row[0], row[3].startswith("cannot be read: "), len(row)) == ("7", True, 8)


@pytest.mark.parametrize(
    ("text", "at"),
    [("2026-01-31", 1769817600000), ("2026-01-31T12:00", 1769860800000), ("1769817600000", 1769817600000)],
)
def test_times_are_read_as_they_are_written(text: str, at: int) -> None:
    assert make_question({"since": text, "until": None}).since_unix_ms == at


def test_a_time_may_be_how_long_ago_as_in_policy_replay():
    since = make_question({"since": "7d"}).since_unix_ms
    ago = time.time() * 1000 - since  # read after it, and clocks of two kinds round otherwise
    assert 7 * 86_400_000 - 1000 < ago < 8 * 86_400_000


def test_a_time_that_is_none_is_a_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="--until"):
        make_question({"until": "yesterday"})
