"""Nothing a tool or a file's name says reaches the terminal as anything but text."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.main import called_command
from palyra.cli.render import visible, visible_line

HOSTILE = "a\x1b[31m\x9b2J\u202eb\u2028\x7f\r"


def test_escapes_c1_bidi_and_separators_are_spelled_out():
    assert visible(HOSTILE) == "a\\x1b[31m\\x9b2J\\u202eb\\u2028\\x7f\\x0d"
    assert visible("one\n\ttwo") == "one\n\ttwo"
    assert visible_line("one\n\ttwo") == "one\\x0a\\x09two"


@given(st.text())
def test_a_line_stays_one_line_of_characters_that_can_be_seen(text: str):
    shown = visible_line(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    assert len(shown.splitlines()) <= 1


def test_a_command_is_not_mistaken_for_an_options_value():
    assert called_command(["--home", "run", "journal", "tail", "--nosuch"]) == "journal"
    assert called_command(["--home=x", "--json", "run", "--nope"]) == "run"
    assert called_command(["--config"]) == ""
