"""The name server inside: granted names and nothing else, and not a question ever leaves."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.dns import Answer, DnsStream, answer
from palyra.egress.face import face_of
from palyra.egress.hosts import parse_pattern
from palyra.egress.names import NameTable
from palyra.model.net import EgressMode, NetGrant

A, AAAA, TXT, HTTPS, ANY = 1, 28, 16, 65, 255
OPT = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)


def table(*patterns: str) -> NameTable:
    grant = NetGrant(EgressMode.STRICT, tuple(parse_pattern(text) for text in patterns or ("a.test", "*.s.test")))
    face = face_of(grant)
    assert face is not None
    return NameTable(grant, face)


def encode(name: str) -> bytes:
    labels = [one.encode("latin-1") for one in name.split(".")] if name else []
    return b"".join(bytes((len(one),)) + one for one in labels) + b"\0"


def query(name: str, kind: int = A, *, flags: int = 0x0100, counts=(1, 0, 0, 0), more: bytes = b"", family: int = 1):
    head = struct.pack(">6H", 0xBEEF, flags, *counts)
    return head + encode(name) + struct.pack(">HH", kind, family) + more


def read(reply: bytes) -> tuple[int, int, list[bytes]]:
    """(id, code, the addresses)."""
    number, flags, questions, answers = struct.unpack_from(">4H", reply)
    assert flags & 0x8000
    at = 12
    if questions:
        at = reply.index(b"\0", 12) + 5
    found = []
    for _ in range(answers):
        pointer, kind, family, ttl, length = struct.unpack_from(">HHHIH", reply, at)
        assert (pointer, kind, family, ttl, length) == (0xC00C, A, 1, 60, 4)
        found.append(reply[at + 12 : at + 16])
        at += 16
    return number, flags & 15, found


def test_a_granted_name_has_its_own_address():
    found = answer(query("A.test"), table())
    assert (found.name, found.is_granted) == ("A.test", True)
    assert read(found.reply) == (0xBEEF, 0, [bytes((198, 18, 0, 16))])
    assert found.reply[12:24] == query("A.test")[12:24]


def test_the_whole_reply_is_these_bytes():
    assert answer(query("a.test"), table()).reply == bytes.fromhex(
        "beef8580000100010000000001610474657374000001 0001c00c0001000100 00003c0004c6120010"
    )


@pytest.mark.parametrize("kind", [AAAA, TXT, HTTPS, 2, 5, 6, 12, 33])
def test_other_kinds_of_a_granted_name_are_empty_so_that_programs_go_on_with_a(kind):
    assert read(answer(query("a.test", kind), table()).reply) == (0xBEEF, 0, [])


def test_a_name_below_a_suffix_is_answered_and_keeps_its_address():
    names = table()
    first, second = (read(answer(query("x.s.test"), names).reply)[2] for _ in range(2))
    assert first == second == [bytes((198, 18, 0, 17))]


@pytest.mark.parametrize(
    "name",
    [
        "evil.test",
        "s.test",
        "a.test.evil.test",
        "c2VjcmV0.evil.test",
        "test",
        "",
        "localhost",
        "1.1.1.1",
        "0x7f.1",
        "a b.test",
    ],
)
@pytest.mark.parametrize("kind", [A, AAAA, TXT, ANY])
def test_any_other_name_does_not_exist(name, kind):
    found = answer(query(name, kind), table())
    assert read(found.reply) == (0xBEEF, 3, [])
    assert (found.name, found.is_granted, found.why) == (name, False, "it is not among the granted hosts")


def test_a_granted_name_without_an_address_left_is_refused_not_denied():
    names = table("*.s.test")
    for at in range(200):
        found = answer(query(f"n{at}.s.test"), names)
    assert (read(found.reply)[1], found.is_granted, found.why) == (5, False, "no local address is left for it")


def test_edns_is_understood_and_answered():
    found = answer(query("a.test", counts=(1, 0, 0, 1), more=OPT), table())
    assert found.is_granted
    assert found.reply.endswith(OPT)
    assert struct.unpack_from(">H", found.reply, 10) == (1,)


@pytest.mark.parametrize(
    "message",
    {
        "two questions": query("a.test", counts=(2, 0, 0, 0), more=encode("b.test") + b"\0\1\0\1"),
        "not a question": query("a.test", counts=(0, 0, 0, 0)),
        "an answer inside": query("a.test", counts=(1, 1, 0, 0)),
        "two additional": query("a.test", counts=(1, 0, 0, 2), more=OPT + OPT),
        "not EDNS": query("a.test", counts=(1, 0, 0, 1), more=b"\0" + struct.pack(">HHIH", 250, 1, 0, 0)),
        "EDNS cut off": query("a.test", counts=(1, 0, 0, 1), more=OPT[:-1]),
        "EDNS longer than the message": query("a.test", counts=(1, 0, 0, 1), more=OPT[:-2] + b"\0\5x"),
        "bytes behind": query("a.test", more=b"secret"),
        "another class": query("a.test", family=3),
        "an update": query("a.test", flags=0x2800),
        "truncated": query("a.test", flags=0x0200),
        "a pointer to itself": query("")[:12] + b"\xc0\x0c\0\1\0\1",
        "a pointer": query("")[:12] + b"\1a\xc0\x0c\0\1\0\1",
        "label kinds nobody uses": query("")[:12] + b"\x40a\0\0\1\0\1",
        "a name without an end": query("")[:12] + b"\4test",
        "a name that is too long": query(".".join(["a" * 60] * 5)),
        "a dot in a label": query("")[:12] + b"\6a.test\0\0\1\0\1",
        "a foreign letter": query("ä.test"),
        "only a header": query("a.test")[:12],
    }.items(),
    ids=lambda one: one[0],
)
def test_a_malformed_question_is_refused_by_its_number_alone(message):
    found = answer(message[1], table())
    assert (found.name, found.is_granted) == ("", False)
    assert found.reply[:2] == b"\xbe\xef"
    assert found.reply[3] & 15 == 5
    assert found.reply[4:] == bytes(8)


@pytest.mark.parametrize("message", [b"", b"\xbe\xef", query("a.test")[:11], query("a.test", flags=0x8180)])
def test_what_is_no_question_gets_no_answer(message):
    assert answer(message, table()).reply == b""


@given(st.binary(max_size=80))
def test_any_bytes_are_answered_shortly_or_not_at_all(data):
    for message in (data, query("")[:12] + data):
        found = answer(message, table())
        assert len(found.reply) <= len(message) + 16 + len(OPT)


def test_messages_over_tcp_have_their_length_before_them():
    stream = DnsStream(table())
    one = query("a.test")
    framed = len(one).to_bytes(2, "big") + one
    alone = answer(one, table()).reply
    expected = Answer(reply=len(alone).to_bytes(2, "big") + alone, name="a.test", is_granted=True)
    assert stream.receive(framed[:5]) == ()
    assert stream.receive(framed[5:] + framed) == (expected, expected)


@pytest.mark.parametrize("data", [b"\0\0", b"\0\x0b", b"\xff\xff", b"\0\x11" + query("")[:2] + b"\x81" + bytes(20)])
def test_a_stream_that_is_no_dns_is_closed(data):
    stream = DnsStream(table())
    assert stream.receive(data) == ()
    assert stream.is_over
    assert stream.receive(query("a.test")) == ()


@given(st.lists(st.sampled_from(["a.test", "evil.test", "x.s.test", ""]), max_size=4), st.integers(1, 60))
def test_a_stream_is_the_same_in_any_pieces(asked, step):
    data = b"".join(len(query(name)).to_bytes(2, "big") + query(name) for name in asked)
    whole, pieces = DnsStream(table()), DnsStream(table())
    found = [one for at in range(0, len(data), step) for one in pieces.receive(data[at : at + step])]
    assert tuple(found) == whole.receive(data)
    assert [one.name for one in found] == asked
