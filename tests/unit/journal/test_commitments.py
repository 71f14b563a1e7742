"""Commitments: nothing to guess, bound to their field, and what any other program computes."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.canon import sha256_hex
from palyra.journal.commitments import (
    SEALED,
    commit_value,
    commit_values,
    open_salt,
    run_commitment,
    seal_salt,
    seal_salts,
)
from tests.promises import promise


@promise("journal.salted-commitments")
def test_a_commitment_cannot_be_guessed_without_its_salt() -> None:
    pins = {sha256_hex(b"%04d" % pin) for pin in range(10000)}
    assert commit_value("pin", b"1234", bytes([9]) * 32).mac not in pins


@given(salt=st.binary(min_size=32, max_size=32), value=st.binary(max_size=200))
def test_a_commitment_is_the_hmac_that_anybody_else_computes(salt: bytes, value: bytes) -> None:
    assert commit_value("output", value, salt).mac == hmac.digest(salt, b"output\0" + value, "sha256").hex()


def test_several_values_are_committed_to_under_salts_of_their_own() -> None:
    salts = bytes(range(64))
    one, two = commit_values((("input", b"x"), ("plan", b"x")), salts)
    assert (one, two) == (commit_value("input", b"x", salts[:32]), commit_value("plan", b"x", salts[32:]))
    with pytest.raises(ValueError, match="as many salts"):
        commit_values((("input", b"x"), ("plan", b"x")), salts[:32])
    with pytest.raises(ValueError, match="NUL"):
        commit_values((("in\0put", b"x"),), bytes(32))


@given(st.lists(st.tuples(st.text(st.characters(min_codepoint=1, codec="utf-8"), max_size=8), st.binary()), max_size=4))
def test_several_commitments_are_each_one_of_their_own(values: list[tuple[str, bytes]]) -> None:
    salts = bytes(range(32 * len(values)))
    each = [commit_value(name, value, salts[32 * at :][:32]) for at, (name, value) in enumerate(values)]
    assert commit_values(values, salts) == tuple(each)


def test_a_commitment_is_bound_to_its_field_and_salt() -> None:
    macs = {
        commit_value(field, value, salt).mac
        for field, value in (("a", b"bc"), ("ab", b"c"), ("a", b"b"))
        for salt in (bytes(32), bytes([1]) * 32)
    }
    assert len(macs) == 6
    with pytest.raises(ValueError, match="salt"):
        commit_value("a", b"", b"short")
    with pytest.raises(ValueError, match="NUL"):
        commit_value("a\0b", b"", bytes(32))


@given(
    st.lists(st.binary(min_size=32, max_size=32), max_size=5), st.binary(min_size=32, max_size=32), st.integers(0, 9)
)
def test_salts_sealed_together_are_each_sealed_and_open_again(salts, key, index) -> None:
    commitments = [commit_value(f"field{at}", b"", salt) for at, salt in enumerate(salts)]
    sealed = seal_salts(commitments, key, index)
    assert sealed == [SEALED + seal_salt(one.salt, key, index, one.field) for one in commitments]
    assert [open_salt(one, key, index, f"field{at}") for at, one in enumerate(sealed)] == salts


def test_a_runs_commitment_is_what_the_specification_says() -> None:
    salt = bytes(range(32))
    said = hmac.digest(salt, b"run\x001700000000000\x00/srv/\xc3\xa4", "sha256").hex()
    assert run_commitment("/srv/\xe4", 1_700_000_000_000, salt) == said
    assert run_commitment("/srv/\xe4", 1_700_000_000_001, salt) != said
    with pytest.raises(ValueError, match="32 bytes"):
        run_commitment("/srv/\xe4", 1_700_000_000_000, b"")
