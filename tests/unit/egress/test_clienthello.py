"""The host a TLS client names, however its hello is cut; and no second name behind the first."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.clienthello import MAX_HELLO, HandshakeReader, Hello, is_retry, parse_hello, read_hello
from palyra.egress.events import Ruling, SendClient, SendUpstream
from palyra.egress.grammar import Malformed
from tests.unit.egress.playbook import (
    RELAY,
    RETRY,
    Play,
    block,
    client_hello,
    extension,
    hello_message,
    records,
    server_hello,
    server_name,
)


def read(data: bytes) -> Hello | None:
    return read_hello(HandshakeReader(), bytearray(data))


def real_hello(name: str | None, **options) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    for key, value in options.items():
        setattr(context, key, value)
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def test_the_hello_of_a_real_client_is_read():
    assert read(real_hello("Granted.Test")) == Hello(name="granted.test")
    assert read(real_hello(None)) == Hello(name=None)
    assert read(real_hello("a.test", maximum_version=ssl.TLSVersion.TLSv1_2)) == Hello(name="a.test")


def test_the_outer_name_of_an_encrypted_hello_is_what_counts():
    assert parse_hello(hello_message(extension(0xFE0D, b"x"), name=b"a.test")) == Hello(
        name="a.test", is_encrypted=True
    )


@given(st.integers(1, 200), st.integers(1, 400))
def test_a_hello_is_the_same_in_any_number_of_records_and_pieces(record_bytes, step):
    data = client_hello("a.test", size=record_bytes)
    reader, buffer, found = HandshakeReader(), bytearray(), None
    for at in range(0, len(data), step):
        assert found is None
        buffer += data[at : at + step]
        found = read_hello(reader, buffer)
    assert (found, reader.end) == (Hello(name="a.test"), len(data))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_hello_too_short_or_malformed(data):
    with contextlib.suppress(Malformed):
        read(b"\x16\x03\x01" + data)
    with contextlib.suppress(Malformed):
        parse_hello(b"\x01\0\0\0" + data)


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_changed_byte_never_turns_into_another_exception(at, value):
    data = bytearray(client_hello("a.test"))
    data[at % len(data)] = value
    with contextlib.suppress(Malformed):
        read(bytes(data))


@pytest.mark.parametrize(
    "message",
    {
        "two names": hello_message(server_name(b"b.test"), name=b"a.test"),
        "two entries": hello_message(extension(0, block(2, b"\0" + block(2, b"a.test") + b"\0" + block(2, b"b.test")))),
        "another kind of name": hello_message(server_name(b"a.test", kind=1)),
        "empty list": hello_message(extension(0, block(2, b""))),
        "empty name": hello_message(server_name(b"")),
        "bytes after the list": hello_message(extension(0, block(2, b"\0" + block(2, b"a.test")) + b"x")),
        "NUL in the name": hello_message(server_name(b"a.test\0.evil.test")),
        "space in the name": hello_message(server_name(b"a.test ")),
        "unicode": hello_message(server_name("ä.test".encode())),
        "number": hello_message(server_name(b"2130706433")),
        "extension longer than the rest": hello_message(b"\0\0\xff\xff"),
        "no client hello": b"\x02" + hello_message(name=b"a.test")[1:],
        "bytes behind": hello_message(name=b"a.test")[:1] + block(3, hello_message(name=b"a.test")[4:] + b"x"),
        "too long": b"\x01" + (MAX_HELLO + 1).to_bytes(3, "big"),
        "two messages in one record": hello_message(name=b"a.test") * 2,
    }.items(),
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)
def test_a_hello_that_two_readers_may_read_differently_is_malformed(message):
    with pytest.raises(Malformed):
        read(records(message[1]))


@pytest.mark.parametrize(
    "data",
    [b"\x16\x02\x01\0\x05", b"\x16\x03\x01\0\0", b"\x16\x03\x01\xff\xff", b"\x16\x03\x01\0\x01\x01\x17\x03\x03\0\x01x"],
)
def test_records_that_are_no_hello_are_malformed(data):
    with pytest.raises(Malformed):
        read(data)


def test_a_hello_in_endless_tiny_records_is_bounded():
    endless = records(b"\x01\0\x7f\xf0" + bytes(20_000), size=1)
    with pytest.raises(Malformed, match="too many records"):
        read(endless)


# ── judged ──


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


@pytest.mark.parametrize("answer", [server_hello(), b"\x15\x03\x03\0\x02\x02\x28", b"HTTP/1.1 400 Bad\r\n\r\n"])
def test_any_other_answer_opens_the_relay(answer):
    assert is_retry(HandshakeReader(), bytearray(answer)) is False


def test_a_retry_request_is_known_in_pieces():
    for at in range(1, 43):
        assert is_retry(HandshakeReader(), bytearray(RETRY[:at])) is None
    assert is_retry(HandshakeReader(), bytearray(RETRY)) is True
