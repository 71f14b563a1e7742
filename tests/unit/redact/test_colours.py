"""Colour codes hide no secret and are hidden by none: they come out where they stood, or behind the placeholder."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.redact.stream import Redactor
from palyra.redact.values import redact_text

GITHUB = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{LINE}\n{LINE[::-1]}\nAb3=\n-----END RSA PRIVATE KEY-----"
KNOWN = (("db", b"hunter2secret"),)
CODES = ["\x1b[31m", "\x1b[m", "\x1b[01;38;5;196m\x1b[K", "\x1b(B", "\\u001b[0m", "\\x1b[1m", "\\033[0;32m", "\\e[0m"]
SECRETS = [
    f"see {GITHUB} there",
    "pass hunter2secret on",
    "Authorization: Bearer abc123def456\nnext",
    "X-API-Key: abc123def456\nnext",
    "https://user:pass@host/?token=abc&x=1 and",
    f"key: {PEM}\nafter that",
    "id AKIAIOSFODNN7EXAMPLE end",
]


def bare(text: str) -> str:
    return re.sub(r"(?:\x1b|\\(?:u001b|x1b|033|e))(?:\[[0-9;]*[A-Za-z]|\([A-Za-z0-9])", "", text)


def whole(parts: list[bytes]) -> bytes:
    redactor = Redactor(KNOWN)
    return b"".join([redactor.feed(part) for part in parts]) + redactor.finish()


@pytest.mark.parametrize("code", CODES)
def test_a_code_inside_a_key_comes_out_behind_its_placeholder(code):
    text = f"a {GITHUB[:13]}{code}{GITHUB[13:]} b"
    assert redact_text(text) == f"a [redacted:github:1]{code} b"


@pytest.mark.parametrize("code", CODES)
def test_a_key_may_begin_at_a_code_whatever_stands_before_it(code):
    assert redact_text(f"name{code}{GITHUB}{code} b") == f"name{code}[redacted:github:1]{code} b"


def test_a_known_value_coloured_in_the_middle_goes():
    assert redact_text("a hunter\x1b[1m2\x1b[msecret b", KNOWN) == "a [redacted:db:1]\x1b[1m\x1b[m b"


def test_a_key_block_in_a_coloured_diff_goes():
    diff = "".join(f"\x1b[32m+\x1b[m\x1b[32m{line}\x1b[m\n" for line in PEM.split("\n"))
    assert bare(redact_text(f"@@ -1 +1 @@\n{diff} rest\n")) == "@@ -1 +1 @@\n+[redacted:private-key:1]\n rest\n"


@pytest.mark.parametrize(
    "prefix", ["+", "-", "+ ", "- ", "> ", ">> ", "| ", "# ", "// ", " 12 | ", "12: ", "a/key.pem:"]
)
def test_a_key_block_behind_the_prefixes_of_other_programs_goes(prefix):
    text = "".join(f"{prefix}{line}\n" for line in PEM.split("\n"))
    assert redact_text(f"{text}And on.\n") == f"{prefix}[redacted:private-key:1]\nAnd on.\n"


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(SECRETS),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(CODES)), max_size=6),
    st.lists(st.integers(0, 500), max_size=6),
)
def test_codes_anywhere_and_any_split_change_nothing_of_the_text(text, codes, cuts):
    coloured = text
    for at, code in sorted(((at % (len(text) + 1), code) for at, code in codes), reverse=True):
        coloured = coloured[:at] + code + coloured[at:]
    data = coloured.encode()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [data[a:b] for a, b in pairwise(edges)]
    assert whole(parts) == whole([data])
    assert bare(whole([data]).decode()) == whole([text.encode()]).decode()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([*CODES, "\x1b", "\\", "\\u", "[", "3", "1", "m", "u001b", "word ", "\n", "é"]), max_size=30
    )
)
def test_text_with_codes_but_without_secrets_is_preserved_byte_by_byte(fragments):
    data = "".join(fragments).encode()
    assert whole([data]) == data
    assert whole([data[at : at + 1] for at in range(len(data))]) == data


def test_a_reset_at_the_end_of_a_line_comes_out_at_once():
    assert Redactor(KNOWN).feed(b"\x1b[32mok\x1b[0m\n") == b"\x1b[32mok\x1b[0m\n"
    assert Redactor(KNOWN).feed(b"\x1b[32mok\x1b[0m") == b"\x1b[32mok\x1b[0m"


def test_codes_are_kept_when_a_stream_is_cut():
    redactor = Redactor()
    assert redactor.feed(b"\x1b[31mghp_0123\x1b[0m45") == b"\x1b[31m"
    assert redactor.cut() == b"[redacted:cut]\x1b[0m"
