"""Nobody can guess a known secret by watching what is held back: output lags the same for every guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.model.outcome import StreamName
from palyra.redact.both import BothStreams
from tests.promises import promise

SECRET = b"qz7Kp/x+V9-tok3nLmN&wRs"
SECRETS = (("FORGE", SECRET),)
OUT, ERR = StreamName.STDOUT, StreamName.STDERR


def shown(guess: bytes, before: bytes = b"\n@") -> list[int]:
    """How much is to be seen after each step: what a watcher of a background process's log can count."""
    both = BothStreams(SECRETS, lagging=True)
    steps = (before + guess, b"", b"x", b"y" * 40, b"\n" * 7, b"z" * 400)
    return [len(both.feed(OUT, step)) for step in steps]


@promise("secrets.guessed-beginning")
@pytest.mark.parametrize("size", [1, 2, 6, 10, len(SECRET) - 1])
@pytest.mark.parametrize("filled", [0, 30, 100, 500, 5000])
def test_a_right_beginning_comes_out_as_late_as_a_wrong_one(size: int, filled: int) -> None:
    right = SECRET[:size]
    wrong = right[:-1] + bytes([right[-1] ^ 1])
    before = b"-" * filled + b"\n@"
    assert shown(right, before) == shown(wrong, before)


@promise("secrets.guessed-beginning")
@given(st.integers(1, len(SECRET) - 1), st.text(alphabet="~^\n #", max_size=300))
def test_whatever_stands_around_it(size: int, around: str) -> None:
    """The same bytes before the guess and after it, none of which could be of the secret."""
    assert shown(SECRET[:size], around.encode()) == shown(SECRET[: size - 1] + b"\x7f", around.encode())


@promise("secrets.guessed-beginning")
def test_an_end_that_was_cut_off_loses_the_same_whatever_it_was() -> None:
    for text in (b"@" + SECRET[:9], b"@" + SECRET[:8] + b"!", b"nothing of it", b"x" * 1000):
        both = BothStreams(SECRETS, lagging=True)
        came = both.feed(OUT, b"a line\n" * 100 + text)
        rest = dict(both.cut())[OUT]
        assert rest.endswith(b"[redacted:cut]")
        assert len(came + rest) == 700 + len(text) - both._lag + len(b"[redacted:cut]")
        assert dict(both.counts) == {"cut": 1}


def test_at_its_end_a_stream_is_whole_and_clean() -> None:
    both = BothStreams(SECRETS, lagging=True)
    out = both.feed(OUT, b"a " + SECRET[:5]) + both.feed(OUT, SECRET[5:] + b" b") + dict(both.finish())[OUT]
    assert out == b"a [redacted:FORGE:1] b"


def test_without_known_values_nothing_lags() -> None:
    both = BothStreams((), lagging=True)
    assert both.feed(ERR, b"at once") == b"at once"
