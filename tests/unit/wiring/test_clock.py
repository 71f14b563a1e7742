"""Ids are in the order in which they were made, whatever the clock does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.model.call import parse_ulid, ulid_unix_ms
from palyra.testing import FakeClock
from palyra.wiring.clock import SystemClock, SystemIds, encode_time, next_ulid

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def spelled(number: int) -> str:
    return "".join(ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


@given(st.integers(0, 2**48 - 1))
def test_an_id_begins_with_its_time(unix_ms):
    assert encode_time(unix_ms) + "0" * 16 == spelled(unix_ms << 80)
    assert ulid_unix_ms(encode_time(unix_ms) + "Z" * 16) == unix_ms


@given(st.integers(0, 2**128 - 2))
def test_the_next_id_is_one_more(number):
    assert next_ulid(spelled(number)) == spelled(number + 1)


@pytest.mark.parametrize("moves", [(0, 0, 0), (1, -5, 0, 3), (-1000, -1, 1)])
def test_ids_never_repeat_or_go_back(moves):
    clock = FakeClock()
    ids, made = SystemIds(clock), []
    for step in moves * 50:
        clock.advance(step)
        made.append(ids.ulid())
    assert made == sorted(set(made))
    for one in made:
        assert parse_ulid(one, what="id") == one


def test_the_random_part_uses_every_letter():
    ids = SystemIds(SystemClock())
    assert {letter for _ in range(200) for letter in ids.ulid()[10:]} == set(ALPHABET)
