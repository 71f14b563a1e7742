"""SOCKS5 as far as it is spoken, in any pieces."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.events import Ruling
from palyra.egress.grammar import Target
from palyra.egress.socks import SocksRefused, read_greeting, read_request
from tests.unit.egress.playbook import CLOSE, Play


def by_name(name: bytes, port: int = 443, command: int = 1) -> bytes:
    return bytes((5, command, 0, 3, len(name))) + name + port.to_bytes(2, "big")


def by_address(text: str, port: int = 443) -> bytes:
    packed = ip_address(text).packed
    return bytes((5, 1, 0, 1 if len(packed) == 4 else 4)) + packed + port.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (by_name(b"A.test."), Target("a.test", 443)),
        (by_name(b"10.0.0.1", 22), Target("10.0.0.1", 22)),
        (by_address("10.0.0.1"), Target("10.0.0.1", 443)),
        (by_address("fd00::1"), Target("fd00::1", 443)),
        (by_address("::ffff:10.0.0.1"), Target("10.0.0.1", 443)),
    ],
)
def test_a_request_names_a_host_in_its_one_spelling(data, target):
    for at in range(len(data)):
        assert read_request(bytearray(data[:at])) is None
    assert read_request(bytearray(data + b"more")) == (len(data), target)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (by_name(b"a.test", command=2), 7),
        (by_name(b"a.test", command=3), 7),
        (bytes((5, 1, 0, 2, 0, 0, 0)), 8),
        (bytes((4, 1, 0, 1, 0, 0, 0)), 1),
        (bytes((5, 1, 1, 1, 0, 0, 0)), 1),
        (by_name(b"a.test", 0), 1),
        (by_name(b""), 1),
        (by_name(b"a.test\0.evil.test"), 1),
        (by_name("а.test".encode()), 1),
        (by_name(b"2130706433"), 1),
        (by_name(b"0x7f.1"), 1),
        (by_name(b"a.test:80"), 1),
        (by_name(b"user@a.test"), 1),
        (by_name(b"[::1"), 1),
    ],
)
def test_what_is_not_spoken_is_refused_with_its_own_code(data, code):
    with pytest.raises(SocksRefused) as caught:
        read_request(bytearray(data))
    assert caught.value.code == code
    play = Play("a.test").proxy()
    play.say(b"\x05\x01\x00", data)
    assert play.client == b"\x05\x00" + bytes((5, code, 0, 1)) + bytes(6)
    assert play.rulings[0][2] is Ruling.REFUSED
    assert play.commands[-1] == CLOSE


@pytest.mark.parametrize(
    "said", [by_name(b"evil.test"), by_name(b"a.test", 22), by_address("127.0.0.1"), by_address("::1")]
)
def test_what_is_not_granted_is_not_allowed_by_the_ruleset(said):
    play = Play("a.test").proxy()
    play.say(b"\x05\x01\x00", said)
    assert play.client.endswith(bytes((5, 2, 0, 1)) + bytes(6))
    assert not play.was_dialled


def test_a_greeting_says_which_ways_it_offers():
    assert read_greeting(bytearray(b"\x05")) is None
    assert read_greeting(bytearray(b"\x05\x02\x01")) is None
    assert read_greeting(bytearray(b"\x05\x02\x01\x00x")) == (4, True)
    assert read_greeting(bytearray(b"\x05\x00")) == (2, False)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_request_too_short_or_refused(data):
    with contextlib.suppress(SocksRefused):
        read_request(bytearray(b"\x05\x01\x00" + data))
    read_greeting(bytearray(data))
