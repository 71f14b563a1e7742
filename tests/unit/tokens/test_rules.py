"""Tokens: spelled one way, kept as digests, an agent is never an operator, every token ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected
from palyra.tokens.rules import DEFAULT_MS, LONGEST_MS, Token, digest_of, id_of, is_same, new_token, spell

ID = "01J00000000000000000000000"


def token(**more) -> Token:
    words = {"token_id": ID, "principal": "agent:a", "operator": False, "workspace": "", "now_unix_ms": 0}
    return new_token(**(words | {"lifetime_ms": None} | more))


def test_a_token_is_found_by_its_id_and_known_by_its_digest():
    text = spell(ID, bytes(range(32)))
    assert id_of(text) == ID
    assert is_same(digest_of(text), text)
    assert not is_same(digest_of(text), spell(ID, bytes(32)))


@pytest.mark.parametrize(
    "text",
    ["", "palyra_", f"palyra_{ID}_", f"palyra_{ID}_{'G' * 64}", f" palyra_{ID}_{'0' * 64}"],
)
def test_what_is_spelled_otherwise_is_no_token(text):
    assert id_of(text) is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text):
    assert id_of(text) is None or text.startswith("palyra_")


def test_an_agent_is_never_an_operator():
    with pytest.raises(Rejected) as caught:
        token(operator=True)
    assert caught.value.reason is Reason.CAPABILITY_DENIED
    assert token(principal="user:a", operator=True).operator


@pytest.mark.parametrize("lifetime", [0, -1, 999, LONGEST_MS + 1])
def test_a_lifetime_that_is_none_is_refused(lifetime):
    with pytest.raises(Rejected):
        token(lifetime_ms=lifetime)


def test_every_token_ends():
    made = token()
    assert made.holds(DEFAULT_MS - 1)
    assert not made.holds(DEFAULT_MS)
