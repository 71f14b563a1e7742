"""Text that people read: nothing in it is drawn as nothing, turns a line around, or covers another."""

from __future__ import annotations

import unicodedata

import pytest

from palyra.model.visible import spell_spaces, visible, visible_line
from tests.promises import promise


@promise("approvals.shown-whole")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("rm\u3164x", "rm\\u3164x"),
        ("a\u115f\u1160\uffa0\u2800", "a\\u115f\\u1160\\uffa0\\u2800"),
        ("a\u034fb", "a\\u034fb"),
        ("a\ufe0fb\ufe00c", "a\\ufe0fb\\ufe00c"),
        ("a\U000e0100", "a\\U000e0100"),
        ("a\U000e0041", "a\\U000e0041"),
        ("a\u0378b", "a\\u0378b"),
    ],
)
def test_what_no_font_draws_is_spelled_out(text, shown):
    assert visible(text) == shown


@promise("approvals.shown-whole")
def test_a_heap_of_marks_does_not_cover_the_lines_around_it():
    shown = visible("a" + "\u0336" * 300)
    assert (shown.count("\u0336"), shown.count("\\u0336")) == (4, 296)


@pytest.mark.parametrize(
    "text", ["naïve", "e\u0301", "日本語\u3000x", "12\u202f000", "✔\ufe0f", "हिन्दी", "한국어", "\tb\n"]
)
def test_languages_signs_and_spaces_stay_as_they_are(text):
    assert visible(text) == text


@promise("approvals.shown-whole")
def test_in_a_word_a_space_of_another_kind_is_told_from_one():
    assert spell_spaces("rm\u00a0-rf\u3000x y") == "rm\\xa0-rf\\u3000x y"


@promise("approvals.shown-whole")
def test_no_line_is_forged():
    assert visible_line("a\nb\tc\r") == "a\\x0ab\\x09c\\x0d"


@promise("approvals.shown-whole")
def test_every_character_that_is_default_ignorable_is_spelled_out():
    """Those of the standard's list that are assigned, and its reserved ranges."""
    ranges = (
        "ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8"
        " 1bca0-1bca3 1d173-1d17a e0000-e0fff"
    )
    for part in ranges.split():
        first, _, last = part.partition("-")
        for code in range(int(first, 16), int(last or first, 16) + 1):
            assert visible(chr(code)) != chr(code), unicodedata.name(chr(code), hex(code))
