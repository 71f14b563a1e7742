"""Keys and cookies in header fields go, names and attributes stay; what only looks like such a field stays whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.redact import fields, headers
from palyra.redact.fields import Cookies, KeyFields
from palyra.redact.headers import name_before
from palyra.redact.stream import Redactor
from palyra.redact.values import redact_text
from palyra.redact.verdict import Window


@pytest.mark.parametrize(
    ("text", "secret", "kind"),
    [
        ("X-API-Key: abc123\r\nHost: x\r\n", "abc123", "key-field"),
        ("x-api-key: abcdefgh-1\n", "abcdefgh-1", "key-field"),
        ("> X-Api-Key: 8f7d6a5b\n", "8f7d6a5b", "key-field"),
        ("+X-Auth-Token: 8f7d6a5b\n", "8f7d6a5b", "key-field"),
        ("curl -H 'X-API-Key: s3cr3t' https://example.com", "s3cr3t", "key-field"),
        ('{"X-Vault-Token": "s.a1b2c3d4", "y": 1}', "s.a1b2c3d4", "key-field"),
        ('{\\"api-key\\":\\"a1b2c3d4e5f6\\"}', "a1b2c3d4e5f6", "key-field"),
        ("Private-Token: a1b2c3d4\n", "a1b2c3d4", "key-field"),
        ("Ocp-Apim-Subscription-Key: a1b2c3d4\n", "a1b2c3d4", "key-field"),
        ("Cookie: sid=abc; theme=dark\n", "sid=abc; theme=dark", "cookie"),
        ("cookie: sid=xyz\r\nHost: x\n", "sid=xyz", "cookie"),
        ("> Cookie: sid=abc123\n", "sid=abc123", "cookie"),
        ('{"Cookie": "sid=abc123; b=2", "x": 1}', "sid=abc123; b=2", "cookie"),
        ("curl -H 'Cookie: sid=abc123' https://x", "sid=abc123", "cookie"),
        ("Set-Cookie: sid=abc123; Path=/; HttpOnly\n", "abc123", "cookie"),
        ("< set-cookie: sid=abc123; Secure\n", "abc123", "cookie"),
        ("map[X-Api-Key:[a1b2c3d4e5f6] Host:[x]]", "a1b2c3d4e5f6", "key-field"),
        ('{"x-api-key"=>"a1b2c3d4", "y"=>1}', "a1b2c3d4", "key-field"),
        ('{"Cookie" => "sid=abc123"}', "sid=abc123", "cookie"),
        ("map[Cookie:[sid=abc123; b=2] Host:[x]]", "sid=abc123; b=2", "cookie"),
        ("'set-cookie': [ 'sid=abc; Path=/', 'b=2; Secure' ],", "sid=abc; Path=/', 'b=2; Secure", "cookie"),
        ('{"cookie":["sid=abc123"],"x":["y"]}', "sid=abc123", "cookie"),
        ("Proxy-Authorization: Basic dXNlcjpwYXNz\n", "dXNlcjpwYXNz", "authorization"),
    ],
)
def test_the_value_goes_and_nothing_else(text, secret, kind):
    assert text.count(secret) == 1
    assert redact_text(text) == text.replace(secret, f"[redacted:{kind}:1]")


@pytest.mark.parametrize(
    "text",
    [
        "X-Cache-Key: abc123def456\n",
        "Idempotency-Key: 8f7d6a5b4c3d2e1f\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n",
        "sort-key: name\nprimary-key: id\nforeign-key: 8f7d6a5b4c3d2e1f\n",
        "next-token: 12345678901234\n",
        "X-API-Key: $API_KEY\n",
        "X-API-Key: ${API_KEY}\n",
        "X-API-Key: <your key>\n",
        "headers = {'X-API-Key': api_key}\n",
        "x-api-key: required\n",
        "the api-key: see the manual for how to get one\n",
        "Cookie: the small text file a site leaves behind\n",
        "cookie: req.headers.cookie,\n",
        "const cookie: string = parse(input)\n",
        "Cookie: name=$VALUE\n",
        "Set-Cookie: session=<value>; Path=/\n",
        'document.cookie = "a=b"\n',
        "cookies: none\n",
        "'cookie' => 'array',\n",
        "Cookie:[] Host:[x]\n",
        "setCookie: [string, function]\n",
        "'x-api-key' => $key,\n",
        "app-token: [ident]\n",
    ],
)
def test_other_fields_prose_and_code_stay(text):
    assert redact_text(text) == text


def test_a_cookie_without_end_is_swallowed_in_bounded_memory():
    redactor = Redactor()
    out = redactor.feed(b"Set-Cookie: sid=")
    for _ in range(100):
        out += redactor.feed(b"abcdef0123456789" * 64)
        assert len(redactor._shapes._data) < 40_000
    out += redactor.feed(b"; Path=/\n") + redactor.finish()
    assert out == b"Set-Cookie: sid=[redacted:cookie:1]; Path=/\n"
    assert redactor.counts == {"cookie": 1}


WORDS = (
    "token tokens tokenizer tokenize signature signal sig design assign significant key keyboard monkey api apikey "
    "secret secretary password passwordless cookie cookies authorization authorize bearer basic session private public "
    "pypi npm github gitlab slack stripe vault docker sk pk hf shp dapi age sendgrid akia asia xox eyj begin end rsa"
).split()


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", "_", "-", ".", ", ", "\n", " = ", "(", ")"]))))
def test_words_that_merely_sound_like_secrets_stay(parts):
    # `authorization = x` is a header in one of its spellings
    text = "".join(word + (" " if (word, sign) == ("authorization", " = ") else sign) for word, sign in parts)
    assert redact_text(text) == text


FRAGMENTS = ["X-API-Key", "x-", "api-key", "Set-", "Cookie", "cookie2", "Proxy-", "proxy_", "Authorization", "token"]
FRAGMENTS += ["private-token", ":", "=", " ", "\t", '"', "'", "\\", "]", "-", "_", "a", "\n"]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join).map(str.encode), st.integers(0, 12))
def test_a_name_is_found_by_its_end_where_the_pattern_alone_finds_it(before: bytes, gone: int) -> None:
    """The quick way is only a quick way: whatever stands before a candidate, both say the same."""
    for ending, names, longest in (
        (KeyFields._ending, KeyFields._endings, fields._LONGEST_NAME),
        (Cookies._ending, fields._COOKIES, fields._LONGEST_NAME),
        (headers._ENDING, headers._NAMES, headers._LONGEST_NAME),
    ):
        for sign in b":=":
            data = before[gone:] + bytes([sign])
            window = Window(data=data, at=len(data), stop=len(data), ended=True)
            quick = name_before(ending, names, window, longest=longest)
            whole = ending.search(data, max(0, len(data) - longest), len(data))
            assert (quick and (quick.span(), quick.groupdict())) == (whole and (whole.span(), whole.groupdict()))
