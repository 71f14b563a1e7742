"""Intake: one strict JSON object, or a coded refusal; never a guess, never a traceback."""

from __future__ import annotations

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected
from palyra.protocol import parse
from palyra.protocol.parse import MAX_DEPTH, check_input, parse_input, parse_value
from tests.promises import promise

CAP = 1 << 20
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def refusal(read, value) -> Reason:
    with pytest.raises(Rejected) as caught:
        read(value, max_bytes=CAP)
    assert len(caught.value.detail) < 200
    return caught.value.reason


@given(OBJECTS)
def test_what_was_sent_is_what_is_read(value):
    assert parse_input(json.dumps(value).encode(), max_bytes=CAP) == value
    assert check_input(value, max_bytes=CAP) == value


@promise("calls.strict-input")
@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_coded_refusal(data):
    try:
        value = parse_input(data, max_bytes=CAP)
    except Rejected as refused:
        value = {"refused": refused.reason}
    assert isinstance(value, dict)
    assert value.get("refused", Reason.MALFORMED) is Reason.MALFORMED


@promise("calls.strict-input")
@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"null", b'"x"', b"{", b'{"a":1}x', b"{}{}", b"\xff{}", b"\xef\xbb\xbf{}", b'{"a":NaN}',
        b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":1,"a":2}', b'{"o":{"k":1,"k":1}}', b'{"a":"\\ud800"}',
        b'{"\\udc00":1}', b'{"a":9007199254740992}', b'{"a":-9007199254740992}', b'{"a":' + b"9" * 5000 + b"}",
        b"{'a':1}", b'{"a":01}', b'{"a":1,}', b'{"a":"\x01"}', b'{"a":tru}', b"/**/{}", b"{\x00}",
    ],
)  # fmt: skip
def test_malformed_bytes_are_refused(data):
    assert refusal(parse_input, data) is Reason.MALFORMED


@promise("calls.strict-input")
def test_nesting_is_counted_before_a_recursive_parser_sees_it():
    deepest = b'{"a":' * (MAX_DEPTH - 1) + b"{}" + b"}" * (MAX_DEPTH - 1)
    assert parse_input(deepest, max_bytes=CAP)
    for attack in (b"[" * 500_000, b'{"a":' * 100_000, b'{"a":' + deepest + b"}"):
        assert refusal(parse_input, attack) is Reason.MALFORMED


def test_brackets_inside_strings_are_not_nesting():
    value = {"a": "[[{{" * 100, 'b\\"[[[': '\\"' + "[" * 50}
    assert parse_input(json.dumps(value).encode(), max_bytes=CAP) == value


@promise("calls.bounded-parsing")
@pytest.mark.parametrize(
    "data", [b"[" + b"[]," * 50 + b"1]", b"[" + b"{}," * 50 + b"1]", b"[" + b"1," * 100 + b"1]", b'"' * 2000]
)
def test_values_are_counted_before_any_is_made(data):
    """Millions of empty lists are a small text, and seconds of work to everybody behind."""
    with pytest.raises(Rejected) as refused:
        parse_value(data, max_values=100)
    assert refused.value.reason is Reason.TOO_LARGE


@promise("calls.bounded-parsing")
@pytest.mark.parametrize("beginning", [b'["', b'{"a":"x', b'"\\\\'])
def test_a_text_that_never_ends_holds_nobody_up(beginning):
    """Eighty kilobytes of quotes behind backslashes took half a minute, a megabyte hours: each was tried as the
    beginning of a text that has an end."""
    before = signal.signal(signal.SIGVTALRM, lambda *_: pytest.fail("it is still looking for an end"))
    signal.setitimer(signal.ITIMER_VIRTUAL, 30)
    try:
        assert refusal(parse_input, beginning + b'\\"' * (CAP // 2 - 8)) is Reason.MALFORMED
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_what_stands_in_texts_is_no_value():
    text = b'["' + b",[{" * 1000 + b'\\"' * 300 + b'"]'
    assert parse_value(text, max_values=100) == [",[{" * 1000 + '"' * 300]


def test_a_mapping_that_is_too_large_is_refused_before_it_is_copied(monkeypatch):
    monkeypatch.setattr(parse, "_copy", lambda value, depth: pytest.fail("it was copied"))
    with pytest.raises(Rejected) as refused:
        check_input({"a": [[]] * 1000}, max_bytes=1000)
    assert refused.value.reason is Reason.TOO_LARGE


@promise("calls.strict-input")
def test_the_size_is_refused_before_anything_is_parsed():
    with pytest.raises(Rejected) as caught:
        parse_input(b"\xff" * 11, max_bytes=10)
    assert caught.value.reason is Reason.TOO_LARGE


@promise("calls.strict-input")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], Reason.BAD_ARGUMENTS),
        ({"a": {1, 2}}, Reason.BAD_ARGUMENTS),
        ({"a": b"bytes"}, Reason.BAD_ARGUMENTS),
        ({1: "a"}, Reason.BAD_ARGUMENTS),
        ({"a": float("nan")}, Reason.MALFORMED),
        ({"a": 2**53}, Reason.MALFORMED),
        ({"a": "\ud800"}, Reason.MALFORMED),
        ({"a": "x" * (CAP + 1)}, Reason.TOO_LARGE),
    ],
)
def test_a_mapping_from_python_obeys_the_same_rules(value, reason):
    assert refusal(check_input, value) is reason


def test_a_mapping_that_holds_itself_is_refused():
    loop: dict[str, object] = {}
    loop["a"] = loop
    assert refusal(check_input, loop) is Reason.MALFORMED


def test_the_copy_shares_nothing_with_what_was_given():
    given_value = {"a": [1, {"b": (2,)}]}
    copied = check_input(given_value, max_bytes=CAP)
    given_value["a"][1]["b"] = "changed"  # type: ignore[index]
    assert copied == {"a": [1, {"b": [2]}]}


def test_where_a_string_does_not_end_is_said_once():
    with pytest.raises(Rejected) as refused:
        parse_input(b'{"comm', max_bytes=100)
    assert refused.value.detail == "The input is not JSON: unterminated string at character 1."
