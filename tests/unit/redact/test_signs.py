"""Where no sign stands, no detector finds anything: what is called clear at once is clear."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.redact.signs import ASKED_BEFORE_COMPILED, SHORT_BYTES, Signs, compile_signs
from palyra.redact.stream import _DETECTORS
from palyra.redact.values import is_clear, redact_json

SIGNS = {sign for one in _DETECTORS for sign in one.signs}
PATTERN = compile_signs(SIGNS)
pieces = st.sampled_from([*sorted(SIGNS), b"-", b":", b"key", b"=", b"u", b"A", b"g", b"sk", b"x", b"\\"])
texts = st.lists(pieces | st.binary(max_size=3), max_size=6).map(b"".join)


@given(texts)
def test_one_search_finds_a_sign_exactly_where_one_stands(data):
    assert (PATTERN.search(data) is not None) == any(sign in data for sign in SIGNS)


@given(texts.map(lambda data: data.swapcase()) | texts)
def test_no_detector_finds_anything_without_one_of_its_signs(data):
    for detector in _DETECTORS:
        if detector.find(data, 0):
            assert any(sign in data for sign in detector.signs), type(detector).__name__


@pytest.mark.parametrize("size", [1, SHORT_BYTES, SHORT_BYTES + 1])
def test_what_is_answered_at_once_is_answered_as_before(size):
    signs = Signs(_DETECTORS)
    answers = [signs.are_none_in(b"a" * size) for _ in range(ASKED_BEFORE_COMPILED + 1)]
    assert answers[0] is False
    assert answers[-1] is (size <= SHORT_BYTES)
    assert not signs.are_none_in(b"ghp_")


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=8) | texts.map(lambda data: data.decode("latin-1"))))
def test_what_is_called_clear_is_left_as_it_is(value):
    if is_clear(orjson.dumps(value)):
        assert redact_json(value, (("unused", b"\0\0\0\0\0\0\0\0"),)) == value
