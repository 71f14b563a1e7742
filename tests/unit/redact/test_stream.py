"""The redactor as a stream: any split gives the same text, little is held back, hostile text stays cheap."""

from __future__ import annotations

import base64
import functools
import time
from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.redact import stream, values
from palyra.redact.signs import ASKED_BEFORE_COMPILED
from palyra.redact.stream import MAX_NUMBERS, Redactor
from palyra.redact.values import redact_json, redact_text
from palyra.redact.verdict import CAP, CONTEXT, Detector
from tests.promises import promise

BODY = "0123456789abcdefghijABCDEFGHIJ012345"
GITHUB = "ghp_" + BODY
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
BEGIN = "-----BEGIN RSA PRIVATE KEY-----"
END = "-----END RSA PRIVATE KEY-----"
SECRETS = (
    ("db", b"hunter2secret"),
    ("odd name/1", b"p/w with space&more\n"),
    ("periodic", b"ababab"),
    ("inner", b"secret-tail9"),
)

FRAGMENTS = [
    *(GITHUB, "gh", "p_", "eyJ", "eyJhbGciOiJIUzI1NiJ9", ".", "eyJzdWIiOiIxIn0", "sk-", "sk-ant-" + BODY, "AKIA"),
    *("IOSFODNN7EXAMPLE", "xoxb-", "1234567890-", "glpat-", "npm_", "pypi-AgE", "AIza", BODY, "_authToken="),
    *("Authorization: ", "Proxy-Authorization=", "Bearer ", 'Digest a="b", c', '"', "'", "\\n", "\n", "\r\n", " "),
    *("https://", "://", "user", ":", "@", "/", "?", "&", "&amp;", "\\u0026", "token=", "password=", "#access_token="),
    *(
        BEGIN,
        END,
        "-----",
        "----",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
        KEY_LINE,
        "abc=",
        "hello world",
        "Comment: x\n",
    ),
    *(
        "hunter2secret",
        "hunter2",
        "secret",
        "-tail9",
        "ab",
        "abab",
        "p/w with space&more",
        "p%2Fw%20with%20",
        "space%26more",
    ),
    *(base64.b64encode(b"x" * pad + b"hunter2secret and").decode() for pad in range(3)),
    *(
        "\x1b[31m",
        "\x1b[m",
        "\x1b",
        "[0m",
        "\\u001b[0m",
        "\\",
        "X-API-Key: ",
        "Cookie: ",
        "Set-Cookie: sid=",
        "; Path=/",
    ),
    *(
        "sk_live_",
        "hf_",
        "hvs.",
        "SG.",
        "dckr_pat_",
        "shpat_",
        "0123456789abcdef" * 4,
        "AGE-SECRET-KEY-1",
        "tskey-",
        ",",
    ),
    *("%20", "aws_secret_access_key", " = ", KEY_LINE[:40], "...", "a" * 300, "B" * 1500, "[redacted:x:1]"),
]


def run(parts: list[bytes], secrets: stream.Secrets = SECRETS) -> tuple[bytes, dict[str, int]]:
    redactor = Redactor(secrets)
    text = b"".join([redactor.feed(part) for part in parts]) + redactor.finish()
    return text, dict(redactor.counts)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@promise("secrets.redacted-output")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=25),
    st.lists(st.integers(min_value=0, max_value=1 << 16), max_size=12),
)
def test_any_split_gives_the_same_text_and_counts(fragments, cuts):
    data = "".join(fragments).encode()
    assert run(split(data, cuts)) == run([data])


@promise("secrets.redacted-output")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=8))
def test_byte_by_byte_gives_the_same_text_and_counts(fragments):
    data = "".join(fragments).encode()[:2000]
    assert run([data[at : at + 1] for at in range(len(data))]) == run([data])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["?token=", BEGIN + "\n", "Authorization: Bearer ", "eyJhbGciOiJIUzI1NiJ9.", "ghp_", "https://u:"]),
    st.sampled_from(["a", KEY_LINE + "\n", "a.", "ab-"]),
    st.integers(min_value=CAP - 40, max_value=CAP + 2000),
    st.sampled_from(["", " tail", "\n" + END + "\n", "@host", "&x=1", "."]),
    st.lists(st.integers(min_value=0, max_value=1 << 16), max_size=8),
)
def test_any_split_gives_the_same_around_the_cap(start, unit, size, rest, cuts):
    data = (start + (unit * size)[:size] + rest).encode()
    assert run(split(data, cuts)) == run([data])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(min_value=0, max_value=400), max_size=5))
def test_bytes_without_a_secret_are_preserved(data, cuts):
    assert run(split(data, cuts), ()) == (data, {})


WHOLE = "\n".join(
    [
        f"token {GITHUB} and sk_live_{BODY} SG.{BODY[:22]}.{BODY}abcdefg",
        f"X-API-Key: {BODY[:12]}",
        "Cookie: sid=abc123; b=2",
        f"\x1b[32m+{GITHUB[:20]}\x1b[0m{GITHUB[20:]}\x1b[m",
        "https://u:p@h/?token=abc&x hunter2secret",
        f"{BEGIN}\n{KEY_LINE}\n{END}",
        "AKIAIOSFODNN7EXAMPLE,wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY hvs.CAES" + BODY,
    ]
).encode()


def test_every_split_into_two_and_every_chunk_size_gives_the_same():
    whole = run([WHOLE])
    assert sum(whole[1].values()) == 12
    for at in range(len(WHOLE) + 1):
        assert run([WHOLE[:at], WHOLE[at:]]) == whole
    for size in range(1, 70):
        assert run([WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]) == whole


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://discord.com/api/webhooks/123456789012345678/{BODY}{BODY} -d x",
         "https://discord.com/api/webhooks/[redacted:discord:1] -d x"),
        ("x sntrys_eyJ" + "a1B2c3/D4e5+f6=" * 8 + " y", "x [redacted:sentry:1] y"),
        ("key-data: " + base64.b64encode(f"{BEGIN}\n{KEY_LINE}\n{END}".encode()).decode() + " y",
         "key-data: [redacted:private-key:1] y"),
    ],
)  # fmt: skip
def test_a_key_that_is_no_long_word_is_replaced_wherever_a_chunk_ends(text: str, shown: str):
    """What came before its first slash was let go when a chunk ended behind it, and nothing was found of the rest."""
    data = text.encode()
    for at in range(len(data) + 1):
        assert run([data[:at], data[at:]], ())[0] == shown.encode()
    for size in range(1, 40):
        assert run([data[at : at + size] for at in range(0, len(data), size)], ())[0] == shown.encode()


@promise("secrets.redacted-output")
def test_secret_split_across_two_writes_is_replaced():
    redactor = Redactor()
    assert redactor.feed(b"token = ghp_01234567") == b"token = "
    assert redactor.feed(BODY[8:].encode() + b"\n") == b"[redacted:github:1]\n"
    assert redactor.finish() == b""
    assert redactor.counts == {"github": 1}


@pytest.mark.parametrize(
    "prompt", [b"Password: ", b"Password:", b"Continue?", b"[y/N] ", b"$ ", b"> ", b"Enter a number [1-5]: ", b"100%"]
)
def test_prompt_without_newline_comes_out_at_once(prompt):
    assert Redactor(SECRETS).feed(prompt) == prompt


def test_line_that_ends_in_a_secrets_first_letter_comes_out_at_once():
    assert Redactor((("x", b"dQ8wr4tt9"),)).feed(b"hello world\n") == b"hello world\n"


@promise("secrets.redacted-output")
def test_only_what_may_become_a_secret_is_held_back():
    redactor = Redactor()
    assert redactor.feed(b"see gh") == b"see "
    assert redactor.feed(b"ost") == b"ghost"
    assert redactor.feed(b"the task") == b"the task"
    assert redactor.finish() == b""


def test_finish_releases_what_was_held():
    redactor = Redactor()
    assert redactor.feed(b"ends in ghp_0123") == b"ends in "
    assert redactor.finish() == b"ghp_0123"


def test_placeholders_are_stable_per_value_and_tell_two_apart():
    other = GITHUB.replace("0", "9")
    text = redact_text(f"{GITHUB} {other} {GITHUB} https://h/?token={GITHUB}")
    assert text == "[redacted:github:1] [redacted:github:2] [redacted:github:1] https://h/?token=[redacted:url-query:1]"


def test_known_secrets_have_their_numbers_whatever_comes_first():
    text = redact_text(f"{GITHUB} secret-tail9 hunter2secret", SECRETS)
    assert text == "[redacted:github:5] [redacted:inner:4] [redacted:db:1]"


def test_known_secret_in_a_telling_place_keeps_its_own_name():
    text = "Authorization: Bearer hunter2secret\nhttps://u:hunter2secret@h/?token=hunter2secret&x=1"
    shown = "[redacted:db:1]"
    assert redact_text(text, SECRETS) == text.replace("hunter2secret", shown)


def test_rest_of_a_value_behind_a_known_secret_does_not_stay():
    assert redact_text("?token=hunter2secretREST&x", SECRETS) == "?token=[redacted:url-query:5]&x"


def test_numbers_of_placeholders_are_bounded(monkeypatch):
    monkeypatch.setattr(stream, "MAX_NUMBERS", 3)
    tokens = [f"ghp_{number:036d}" for number in range(6)]
    shown = ["[redacted:github:1]", "[redacted:github:2]", "[redacted:github:3]", *["[redacted:github:4]"] * 3]
    assert redact_text(" ".join(tokens)) == " ".join(shown)


@promise("secrets.redacted-output")
def test_value_longer_than_the_cap_is_swallowed_whole():
    data = b"x?token=" + b"s" * (CAP * 3) + b"&y=1"
    assert run([data]) == (b"x?token=[redacted:url-query:5]&y=1", {"url-query": 1})


HOSTILE = [
    *("eyJ", "-eyJ", "eyJaaaaaaaaa.", "%20eyJ", "a://b:c/", "x://a@", "://", "https://u:", "authorization:"),
    *('"authorization:', "authorization=aws4-", BEGIN + "\n", BEGIN, BEGIN + "\nab\n", f"Comment: {BEGIN}\n"),
    *(
        f"{BEGIN}[redacted:\n",
        "-----BEGIN ",
        "-",
        "gh",
        "ghp_",
        "github_pat_",
        "sk-",
        "xoxe.",
        "glpat-",
        "?token=",
        "&",
    ),
    *("X-API-Key: ", "-key:", "Cookie: a=", "Set-Cookie: ", "cookie:", "\x1b[meyJ", "\x1b[mghp_", "\\u001b[", "\\"),
    *("sk_live_", "SG.", "hvs.", "SG." + "a" * 20 + ".", "AKIAIOSFODNN7EXAMPLE ", "tskey-", "\x1b[0;", "\x1b"),
    *("secret_access_key=", "_authToken=", "hunter2secre", "a", "aaaaab", "ab\n", "\n", "\x1b[31m", "[redacted:"),
]
PERIODIC = (*SECRETS, ("long", b"a" * 500 + b"b"), ("short", b"aaaaaa"))


def cost(data: bytes, size: int) -> tuple[float, int]:
    redactor, held, before = Redactor(PERIODIC), 0, time.process_time()
    for at in range(0, len(data), size):
        redactor.feed(data[at : at + size])
        held = max(held, len(redactor._known._held) + len(redactor._shapes._data))
    redactor.finish()
    return time.process_time() - before, held


SIZE = 1 << 18


@functools.cache
def ordinary_cost() -> float:
    plain = b"An ordinary line of output, with a few words and 42 numbers.\n"
    return min(cost((plain * (SIZE // len(plain)))[:SIZE], 4096)[0] for _ in range(5))


@pytest.mark.slow
@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_flood_costs_linear_time_and_bounded_memory(unit):
    """Backtracking, or one window read again for each candidate, would cost thousands of times the ordinary."""
    spent, held = cost((unit.encode() * (SIZE // len(unit) + 1))[:SIZE], 4096)
    assert spent < 600 * ordinary_cost()
    assert held < CAP + 4096


def test_json_strings_and_keys_are_redacted_and_the_rest_is_kept():
    value = {
        "args": ["-H", f"Authorization: Bearer {GITHUB}", "plain"],
        "env": {"hunter2secret": 1, "HOME": "/x"},
        "nested": ({"deep": "hunter2secret"}, None, True, 1.5, 7),
    }
    assert redact_json(value, SECRETS) == {
        "args": ["-H", "Authorization: Bearer [redacted:authorization:5]", "plain"],
        "env": {"[redacted:db:1]": 1, "HOME": "/x"},
        "nested": [{"deep": "[redacted:db:1]"}, None, True, 1.5, 7],
    }


def test_json_keys_that_become_equal_lose_no_entry():
    value = {"[redacted:db:1]": 1, "hunter2secret": 2}
    assert redact_json(value, SECRETS) == {"[redacted:db:1]": 1, "[redacted:db:1]'": 2}


@promise("secrets.linear-time")
def test_keys_that_all_become_the_same_hold_nobody_up_and_do_not_grow():
    """Beyond the secrets that have numbers every key became one: each was tried from the first on, one sign longer."""
    keys = [f"?pwd={number:x}z" for number in range(MAX_NUMBERS + 4000)]
    clean = redact_json(dict.fromkeys(keys, 1))
    assert isinstance(clean, dict)
    assert len(clean) == len(keys)
    assert max(map(len, clean)) < len(f"?pwd=[redacted:url-query:{MAX_NUMBERS + 1}]'99999")


@promise("secrets.linear-time")
@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "https://u:p@h \x1b[31m",
        "Set-Cookie: s=a\x1b[31m\n",
        "\\u001b[1m&amp;sig=\xff",
        "hunter2secret\x1b[m",
        "\x1b[m?pwd=a ",
    ],
)
def test_a_text_of_nothing_but_coloured_secrets_costs_linear_time(unit):
    """Each colour code was asked of each replacement: one call of a quarter of a megabyte stopped everybody."""
    text = unit * (SIZE // len(unit))
    before = time.process_time()
    redact_text(text, PERIODIC)
    assert time.process_time() - before < 600 * ordinary_cost()


@promise("secrets.linear-time")
@pytest.mark.slow
def test_codes_that_come_one_by_one_into_what_is_held_back_are_not_all_gone_through_for_each():
    redactor, before = Redactor(), time.process_time()
    redactor.feed(b"Authorization: Bearer abc")
    for _ in range(20_000):
        redactor.feed(b"\x1b[m")
    redactor.finish()
    assert time.process_time() - before < 600 * ordinary_cost()


@pytest.mark.parametrize(
    "text", ["x?token=abc1 \x1b[1mhunter2secret", "Authorization: Bearer abc", "hunter2secre", "gh"]
)
def test_a_text_that_is_there_whole_is_redacted_as_one_that_comes_in_parts(text):
    whole, parts = Redactor(SECRETS), Redactor(SECRETS)
    assert whole.finish(text.encode()) == b"".join(parts.feed(bytes([one])) for one in text.encode()) + parts.finish()
    assert whole.counts == parts.counts


def test_secret_of_digits_is_found_as_a_json_number():
    assert redact_json({"pin": 48151623}, (("pin", b"48151623"),)) == {"pin": "[redacted:pin:1]"}


def test_json_numbers_of_any_size_pass():
    assert redact_json([10**5000, -1, True], SECRETS) == [10**5000, -1, True]


def test_text_with_lone_surrogates_passes():
    assert redact_text("a\ud800b hunter2secret", SECRETS) == "a\ud800b [redacted:db:1]"


def test_secret_that_ends_inside_a_character_still_goes():
    assert redact_text("xyzäbcd€", (("cut", "zäbcd€".encode()[:-1]),)) == "xy[redacted:cut:1]�"


TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=5).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FRAGMENTS), inner, max_size=3),
)


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_what_counts_as_clear_at_a_glance_holds_nothing_to_redact(value):
    """The quick look may only spare work: whatever it passes, the redactor itself would have left alone."""
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return
    if values.is_clear(data):
        assert values._redact_value(value, Redactor()) == value
    assert not values.is_clear(data, SECRETS), "known values are looked for in earnest"


@promise("secrets.incremental-search")
@pytest.mark.parametrize("word", [b"Authorization: ", b"eyJ", b"?token=", b"AKIA", b"Cookie: ", b"x" * 40 + b" ghp_"])
def test_bytes_that_come_one_by_one_into_what_is_held_back_are_not_searched_with_all_of_it(
    monkeypatch: pytest.MonkeyPatch, word: bytes
) -> None:
    """A program that writes a byte each millisecond would keep the engine busy for all of that time."""
    searched = 0

    def counting(data: bytes, pos: int) -> list[tuple[int, Detector]]:
        nonlocal searched
        searched += len(data) - pos
        return find(data, pos)

    find = stream.candidates
    monkeypatch.setattr(stream, "candidates", counting)
    text = word * (12_000 // len(word))
    redactor = Redactor()
    for at in range(len(text)):
        redactor.feed(text[at : at + 1])
    redactor.finish()
    assert searched < 40 * len(text)


def test_text_without_a_sign_of_a_secret_is_not_shown_to_each_detector_byte_by_byte(monkeypatch):
    """A program that writes single bytes would have thirty searches made for each, and slow every other call down."""
    asked: list[str] = []
    for _, detector in stream._always:
        find = type(detector).find
        monkeypatch.setattr(type(detector), "find", lambda self, *a, _find=find: asked.append("") or _find(self, *a))
    text = b"a plain line of words, as most are\n" * 40
    redactor = Redactor()
    for _ in range(ASKED_BEFORE_COMPILED):
        stream.SIGNS.are_none_in(b"-")
    assert b"".join(redactor.feed(bytes([byte])) for byte in text) + redactor.finish() == text
    assert asked == []
    assert Redactor().feed(b"X-API-Key: a1b2c3d4\n") == b"X-API-Key: [redacted:key-field:1]\n"
    assert asked != []


@pytest.mark.parametrize("name", ["aUtHoRiZaTiOn", "AUTHOrization", "COOKIE", "SET-COOKIE2", "X-API-KEY"])
def test_a_header_in_any_letters_is_redacted_whatever_stands_elsewhere_and_however_it_comes(name: str) -> None:
    """It was seen only where the same name stood in usual letters too, and passed where that had come out before."""
    line = f"{name}: sid=abcdefghijklmnop1234567\n".encode()
    for before in (b"", b"Authorization: Basic dXNlcjpwYXNz\nCookie: a=b1c2\n" + b"y" * CONTEXT * 2 + b"\n"):
        for size in (1, 3, 60, 10_000):
            redactor = Redactor()
            text = before + line
            parts = [redactor.feed(text[at : at + size]) for at in range(0, len(text), size)]
            assert b"abcdefghijklmnop" not in b"".join(parts) + redactor.finish(), (name, size)
