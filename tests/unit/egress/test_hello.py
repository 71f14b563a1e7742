"""Which host a TLS hello may name, on every port and face; and the second hello is judged like the first."""

from __future__ import annotations

import pytest

from palyra.egress.events import Ruling, SendClient, SendUpstream
from tests.unit.egress.playbook import RELAY, RETRY, Play, client_hello


@pytest.mark.parametrize("name", ["evil.test", "a.test.evil.test", "xa.test", None, "198.18.0.16", "1.1.1.1"])
@pytest.mark.parametrize("port", [443, 8443])
def test_domain_fronting_by_sni_is_refused_on_every_port(name, port):
    play = Play("a.test", "a.test:8443").transparent("a.test", port)
    if port != 443:
        play.reach()
    play.say(client_hello(name))
    assert (play.upstream, play.client) == (b"", bytes((21, 3, 3, 0, 2, 2, 49)))
    assert play.rulings[-1][2] is Ruling.REFUSED
    assert play.is_closed


@pytest.mark.parametrize("name", ["A.TEST", "a.test.", "a.TeSt"])
def test_other_spellings_of_the_same_name_are_the_same(name):
    play = Play("a.test").transparent("a.test", 443)
    play.say(client_hello(name))
    assert play.reach()[-1] == SendUpstream(client_hello(name))


def test_another_sni_inside_connect_is_refused():
    play = Play("a.test").proxy()
    play.say(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n")
    play.reach()
    play.say(client_hello("evil.test"))
    assert (play.upstream, play.rulings[-1]) == (b"", ("evil.test", 443, Ruling.REFUSED))


def test_a_granted_name_may_stand_for_a_granted_address_and_no_other_may():
    for name, is_sent in (("a.test", True), ("b.test", False), ("10.1.2.3", True), (None, True)):
        play = Play("10.1.2.3", "a.test").transparent("10.1.2.3", 443)
        play.say(client_hello(name))
        assert play.was_dialled is is_sent


# ── the second hello ──


def fronted(second: bytes) -> Play:
    play = Play("a.test").transparent("a.test", 443)
    play.say(client_hello("a.test"))
    play.reach()
    assert play.answer(RETRY) == [SendClient(RETRY)]
    play.say(second)
    return play


def test_after_a_retry_request_the_second_hello_is_judged_too():
    change = b"\x14\x03\x03\0\x01\x01"
    again = change + client_hello("a.test")
    play = fronted(again)
    assert play.commands[-1] == RELAY
    assert play.upstream == client_hello("a.test") + again


@pytest.mark.parametrize("early", [b"", b"\x14\x03\x03\0\x01\x01", b"\x17\x03\x03\0\x05early"])
def test_another_name_in_the_second_hello_is_refused(early):
    play = fronted(early + client_hello("evil.test"))
    assert play.upstream == client_hello("a.test")
    assert play.rulings[-1] == ("evil.test", 443, Ruling.REFUSED)
    assert not play.is_relayed


def test_a_second_hello_sent_before_the_retry_request_waits_for_it():
    play = Play("a.test").transparent("a.test", 443)
    play.say(client_hello("a.test") + client_hello("evil.test"))
    play.reach()
    assert play.upstream == client_hello("a.test")
    play.answer(RETRY[:20])
    play.answer(RETRY[20:])
    assert play.rulings[-1] == ("evil.test", 443, Ruling.REFUSED)
    assert play.upstream == client_hello("a.test")
