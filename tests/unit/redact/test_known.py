"""Values known to be secret are found in every form a program is likely to print them."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.redact.known import SHORTEST, forms
from palyra.redact.stream import Redactor
from palyra.redact.values import redact_text

VALUE = b"s3cr3t/+value &more~'x"
ODD = """p<s>w'"\\&\tüber-0123"""


def clean(data: bytes, *values: bytes) -> bytes:
    redactor = Redactor([(f"k{index}", value) for index, value in enumerate(values)])
    return redactor.feed(data) + redactor.finish()


@pytest.mark.parametrize(
    "shown",
    [
        VALUE.decode(),
        quote(VALUE),
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        quote(VALUE, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
        quote(VALUE, safe="!'()*"),
        json.dumps(VALUE.decode())[1:-1],
    ],
)
def test_plain_and_percent_encoded_forms_are_replaced(shown):
    assert redact_text(f"<{shown}>", (("k", VALUE),)) == "<[redacted:k:1]>"


@pytest.mark.parametrize(
    "shown",
    [
        json.dumps(json.dumps(ODD)[1:-1])[1:-1],
        html.escape(ODD),
        html.escape(ODD, quote=False),
        html.escape(ODD).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    ],
)
def test_what_is_escaped_for_json_within_json_or_for_html_is_replaced(shown):
    assert redact_text(f"[{shown}]", (("k", ODD.encode()),)) == "[[redacted:k:1]]"


@pytest.mark.parametrize(("encoding", "rest"), [("utf-16-le", (b"", b"\0")), ("utf-16-be", (b"\0", b""))])
def test_utf_16_is_replaced_and_its_neighbours_stay(encoding, rest):
    before, after = "password: ".encode(encoding), "\r\n".encode(encoding)
    shown = rest[0] + b"[redacted:k0:1]" + rest[1]
    assert clean(before + ODD.encode(encoding) + after, ODD.encode()) == before + shown + after


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc", b"user:"])
@pytest.mark.parametrize("after", [b"", b"z", b"zz", b"\n"])
def test_base64_is_replaced_at_every_alignment(encode, before, after):
    value = b"\xfb\xff>?secret-key-with-every-digit\xfe"
    text = encode(before + value + after)
    shown = clean(text, value)
    assert shown.count(b"[redacted:k0:1]") == 1
    assert len(shown.replace(b"[redacted:k0:1]", b"")) <= len(encode(before)) + len(encode(after)) + 4


def test_base64_folded_into_lines_is_replaced():
    """`base64` breaks lines at 76 columns, mostly in the middle of a secret."""
    value = b"a-rather-long-credential-0123456789"
    for pad in range(70):
        text = base64.encodebytes(b"." * pad + value + b"." * 30)
        shown = clean(text, value)
        assert b"[redacted:k0:1]" in shown
        assert len(shown) - len(b"[redacted:k0:1]") < len(text) - len(value)


def test_value_folded_by_the_terminal_is_replaced():
    assert clean(b"key: 0123456789\r\nabcdef.", b"0123456789abcdef") == b"key: [redacted:k0:1]."


def test_value_of_many_lines_is_replaced_with_any_line_breaks():
    value = b"line one\nline two\nline three\n"
    assert clean(b"[" + value.replace(b"\n", b"\r\n") + b"]", value) == b"[[redacted:k0:1]\r\n]"
    assert clean(json.dumps(value.decode()).encode(), value) == b'"[redacted:k0:1]"'


def test_value_kept_with_a_line_break_at_its_end_is_found_without_it():
    text = base64.b64encode(b"hunter2secret")
    assert clean(b"x hunter2secret y", b"hunter2secret\n") == b"x [redacted:k0:1] y"
    assert clean(text, b"hunter2secret\n").startswith(b"[redacted:k0:1]")


def test_overlapping_secrets_leave_no_rest():
    assert clean(b"-abcdef123xyz789-", b"abcdef123", b"123xyz789") == b"-[redacted:k0:1][redacted:k1:2]-"


def test_longer_of_two_secrets_with_one_beginning_wins():
    assert clean(b"-password123-", b"password", b"password123") == b"-[redacted:k1:2]-"


def test_secret_that_overlaps_itself_is_one():
    assert clean(b"x" + b"ab" * 50 + b"y", b"ababab") == b"x[redacted:k0:1]y"


def test_value_shorter_than_six_bytes_is_not_looked_for():
    assert SHORTEST == 6
    assert clean(b"12345 is a number", b"12345") == b"12345 is a number"


def test_name_shows_in_the_placeholder_without_signs_that_could_break_it():
    redactor = Redactor((("team/key] é", b"hunter2secret"),))
    assert redactor.feed(b"hunter2secret.") == b"[redacted:team-key-:1]."
    assert redactor.counts == {"team-key-": 1}


def test_part_of_a_secret_is_held_back_and_released_when_it_is_none():
    redactor = Redactor((("k", b"hunter2secret"),))
    assert redactor.feed(b"go hunt") == b"go "
    assert redactor.feed(b"ing\n") == b"hunting\n"


def test_part_of_a_secret_and_endless_empty_lines_are_not_held_for_ever():
    redactor = Redactor((("k", b"hunter2secret"),))
    out = redactor.feed(b"hunter2") + b"".join(redactor.feed(b"\n") for _ in range(200))
    assert out.startswith(b"hunter2\n")


@settings(max_examples=150, deadline=None)
@given(
    st.binary(min_size=8, max_size=40).filter(lambda value: len(value.strip()) >= 8),
    st.binary(max_size=30),
    st.binary(max_size=30),
    st.data(),
)
def test_no_form_of_any_value_gets_through(value, before, after, data):
    form = data.draw(st.sampled_from(sorted(forms(value))))
    redactor = Redactor((("k", value),))
    text = before + form + after
    cut = data.draw(st.integers(min_value=0, max_value=len(text)))
    shown = redactor.feed(text[:cut]) + redactor.feed(text[cut:]) + redactor.finish()
    assert form not in shown
    assert redactor.counts["k"] >= 1
