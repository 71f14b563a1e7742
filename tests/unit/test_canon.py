"""Canonical JSON: RFC 8785 to the byte, beside an independent implementation; the journal's profile is stricter."""

from __future__ import annotations

import hashlib

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from palyra.canon import MAX_DEPTH, canonical, canonical_strict, digest

INTS = st.integers(-(2**53) + 1, 2**53 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ASCII = st.text(st.characters(max_codepoint=127), max_size=8)


def values(scalars, keys):
    return st.recursive(
        scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(keys, v, max_size=4), max_leaves=15
    )


@given(values(st.none() | st.booleans() | INTS | FLOATS | TEXT, TEXT))
def test_any_value_has_the_bytes_of_rfc_8785(value):
    assert canonical(value) == rfc8785.dumps(value)


@given(values(st.none() | st.booleans() | INTS | TEXT, ASCII))
def test_the_journals_profile_is_a_part_of_it(value):
    assert canonical_strict(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("text", [",1.5", "[-2e", ":3.", "\x7f", "\x00\x1f", "é", "\U0001f600", '"\\/', "\u2028"])
def test_texts_that_look_like_numbers_or_need_escapes(text):
    assert canonical({"k": text, text: 1}) == rfc8785.dumps({"k": text, text: 1})


def test_keys_are_sorted_by_utf16_code_units():
    assert canonical({"\U00010000": 1, "\uffff": 2}) == rfc8785.dumps({"\U00010000": 1, "\uffff": 2})


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", {"\ud800": 1}, {1: 2}, b"", {1}]
)
def test_what_json_cannot_carry_exactly_is_refused(value):
    with pytest.raises(ValueError, match=r".+"):
        canonical(value)


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize("value", [1.0, {"é": 1}, 2**53, nested(MAX_DEPTH + 1), b"", {"a": "\ud800"}])
def test_the_journals_profile_refuses_more(value):
    with pytest.raises(ValueError, match=r".+"):
        canonical_strict(value)


def test_a_digest_is_the_sha256_of_the_canonical_bytes():
    assert digest({"b": 1, "a": [True]}) == hashlib.sha256(b'{"a":[true],"b":1}').hexdigest()
