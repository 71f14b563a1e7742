"""How values read: bounded, in their unit, and the same whatever somebody puts into them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.daemon.console import words
from palyra.model.visible import visible, visible_line

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("us", "reads"),
    [(None, "–"), (0, "0 µs"), (999, "999 µs"), (1500, "1.5 ms"), (250_000, "250 ms"), (1_500_000, "1.5 s"),
     (200_000_000, "3 min 20 s")],
)  # fmt: skip
def test_durations(us, reads):
    assert words.duration(us) == reads


@pytest.mark.parametrize(
    ("count", "reads"), [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5120.0 GiB")]
)
def test_sizes(count, reads):
    assert words.size(count) == reads


@pytest.mark.parametrize(
    ("ms", "reads"),
    [(NOW, "now"), (NOW - 30_000, "30 s ago"), (NOW - 3_600_000, "1 h ago"), (NOW + 90_000, "in 1 min"),
     (None, "–")],
)  # fmt: skip
def test_how_long_ago(ms, reads):
    assert words.ago(ms, NOW) == reads


def test_a_time_that_is_none_is_still_said():
    assert words.moment(1 << 62) == f"{1 << 62} ms"
    assert words.moment(NOW) == "2023-11-14 22:13:20"


def test_a_state_is_a_word_and_a_sign_before_it_is_a_colour():
    assert words.mark("pending_approval") == words.Mark(word="pending approval", tone="warn", sign="▲")
    assert words.mark("never heard of") == words.Mark(word="never heard of", tone="plain", sign="○")


def test_every_status_of_a_call_has_a_tone():
    from palyra.model.outcome import Status

    plain = {status.value for status in Status if words.mark(status.value).tone == "plain"}
    assert plain <= {"cancelled", "running"}


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_no_argument_looks_like_two_or_like_the_next_line(given_words):
    shown = visible_line(words.argv(given_words))
    assert "\n" not in shown
    unescaped = shown.replace("\\\\", "").replace('\\"', "")
    assert unescaped.count('"') == 2 * len(given_words)


@given(st.text(max_size=300), st.integers(1, 50), st.integers(1, 5))
def test_a_bounded_text_is_a_beginning_of_it(text, chars, lines):
    shown = words.bounded(text, chars, lines)
    assert text.startswith(shown.text)
    assert len(shown.text) <= chars
    assert shown.text.count("\n") < lines
    assert shown.cut == (shown.text != text)


@given(st.text())
def test_visible_text_hides_and_reorders_nothing(text):
    import unicodedata

    shown = visible(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") for c in shown)


@pytest.mark.parametrize(
    ("scope", "reads"),
    [("once", "this one call"), ("run", "such calls of its run"), ("until", "such calls of any run")],
)
def test_what_an_approval_covers(scope, reads):
    assert words.covered(scope) == reads
