"""A list has headings and columns, and nothing in it can be mistaken for another line."""

from __future__ import annotations

import pytest

from palyra.cli.options import Settings
from palyra.cli.tables import moment, say_table, table_lines


def test_columns_stand_under_their_headings():
    assert table_lines(("ID", "WHO"), [("1", "user:alice"), ("1000", "agent:b")]) == [
        "ID    WHO",
        "1     user:alice",
        "1000  agent:b",
    ]


def test_at_a_narrow_terminal_a_row_goes_on_under_headings_of_its_own():
    """A hundred columns, broken by the terminal wherever it ended, are nothing that anybody reads."""
    rows = [("1", "user:alice", "a long thing"), ("1000", "agent:b", "")]
    assert table_lines(("ID", "WHO", "WHAT"), rows, columns=18) == [
        "ID    WHO",
        "    WHAT",
        "1     user:alice",
        "    a long thing",
        "1000  agent:b",
    ]
    assert table_lines(("ID", "WHO", "WHAT"), rows, columns=30) == table_lines(("ID", "WHO", "WHAT"), rows)
    assert table_lines(("A", "B"), [("xxxx", "yyyy")], columns=1) == ["A", "    B", "xxxx", "    yyyy"]


def test_an_empty_cell_at_the_end_leaves_no_blanks():
    assert table_lines(("A", "B"), [("x", "")]) == ["A  B", "x"]


@pytest.mark.parametrize("evil", ["a\nID  forged", "a\x1b[2K\rID", "a\u202eb", "a\u2028b"])
def test_no_cell_makes_a_line_of_its_own_or_moves_the_cursor(evil):
    lines = table_lines(("ID", "NAME"), [("1", evil)])
    assert len(lines) == 2
    assert lines[1].isprintable()


def test_where_there_is_nothing_stdout_is_empty_and_stderr_says_so(capsys):
    say_table(Settings(), ("ID",), [], nothing="There are no tokens.")
    assert capsys.readouterr() == ("", "There are no tokens.\n")
    say_table(Settings(quiet=True), ("ID",), [], nothing="There are no tokens.")
    assert capsys.readouterr() == ("", "")
    say_table(Settings(), ("ID",), [("1",)], nothing="There are no tokens.")
    assert capsys.readouterr() == ("ID\n1\n", "")


def test_times_are_told_in_utc():
    assert (moment(0), moment(1_792_000_000_000), moment(None)) == ("1970-01-01 00:00:00", "2026-10-14 17:46:40", "")
