"""Moments as people write them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.model.moment import LAST_UNIX_MS, parse_moment

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("90m", NOW - 90 * 60_000),
        (" 7 d ", NOW - 7 * 86_400_000),
        ("999999w", 0),
        ("2023-11-14", 1_699_920_000_000),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("1700000000000", NOW),
        ("9" * 16, LAST_UNIX_MS),
        ("0001-01-01T00:00+23:59", 0),
    ],
)
def test_what_is_a_time(text, means):
    assert parse_moment(text, now_unix_ms=NOW) == means


@pytest.mark.parametrize("text", ["", "yesterday", "24", "-1h", "٣h", "2026-13-01", "1h30m"])
def test_what_is_none(text):
    with pytest.raises(ValueError, match="is not a time"):
        parse_moment(text, now_unix_ms=NOW)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_refused(text):
    with suppress(ValueError):
        assert 0 <= parse_moment(text, now_unix_ms=NOW) <= 1 << 60
