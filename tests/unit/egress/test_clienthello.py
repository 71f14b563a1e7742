"""The host a TLS client names, however its hello is cut; and no second name behind the first."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.clienthello import MAX_HELLO, HandshakeReader, Hello, is_retry, parse_hello, read_hello
from palyra.egress.grammar import Malformed
from tests.unit.egress.playbook import (
    RETRY,
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


@pytest.mark.parametrize("answer", [server_hello(), b"\x15\x03\x03\0\x02\x02\x28"])
def test_any_other_answer_of_tls_opens_the_relay(answer):
    assert is_retry(HandshakeReader(), bytearray(answer)) is False


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad\r\n\r\n", b"220 mail\r\n", b"\x15\x02", b"\x16\x03\x01\0\x26" + bytes(38)]
)
def test_an_answer_that_is_not_tls_opens_nothing(answer):
    with pytest.raises(Malformed, match="does not answer as TLS"):
        is_retry(HandshakeReader(), bytearray(answer))


def test_a_retry_request_is_known_in_pieces():
    for at in range(1, 43):
        assert is_retry(HandshakeReader(), bytearray(RETRY[:at])) is None
    assert is_retry(HandshakeReader(), bytearray(RETRY)) is True
