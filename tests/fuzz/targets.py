"""What must hold for any bytes, one function a parser: each raises only when a promise is broken.

Driven by atheris or Hypothesis (`make fuzz`, tests/fuzz/__main__.py), and shortly by tests/unit/egress/test_fuzz.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ipaddress import ip_address

from palyra.egress import events as ev
from palyra.egress.bodies import Chunked
from palyra.egress.clienthello import HandshakeReader, is_retry, read_hello
from palyra.egress.conversation import READ_AHEAD, Conversation, Terms
from palyra.egress.dns import DnsStream, answer
from palyra.egress.events import Face, Side
from palyra.egress.face import face_of
from palyra.egress.grammar import Malformed, parse_authority
from palyra.egress.hosts import parse_host, parse_pattern
from palyra.egress.http import find_head, parse_request, parse_response, read_url, write_head
from palyra.egress.names import NameTable
from palyra.egress.protocols import Protocol, UnknownProtocol, is_answered, read_opening
from palyra.egress.protocols import read_greeting as read_greeting_of
from palyra.egress.socks import read_greeting, read_request
from palyra.errors import Rejected
from palyra.model.net import EgressMode, NetGrant
from tests.fuzz import parsers
from tests.unit.egress.playbook import client_hello, extension

GRANT = NetGrant(EgressMode.STRICT, tuple(map(parse_pattern, ("a.test", "b.test:22", "*.s.test"))))
PUBLIC = ip_address("1.1.1.1")


def names() -> NameTable:
    face = face_of(GRANT)
    assert face is not None
    return NameTable(GRANT, face)


def hosts(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(Rejected):
        name = parse_host(text)
        assert parse_host(name) == name
    with contextlib.suppress(Rejected):
        pattern = parse_pattern(text)
        assert parse_pattern(str(pattern)) == pattern
    with contextlib.suppress(Malformed):
        target = parse_authority(text, default_port=80)
        assert parse_authority(str(target), default_port=None) == target
    with contextlib.suppress(Malformed):
        target, path = read_url(text, scheme="http", default_port=80)
        assert read_url(f"http://{target}{path}", scheme="http", default_port=80) == (target, path)


def heads(data: bytes) -> None:
    whole = data + b"\r\n\r\n"
    with contextlib.suppress(Malformed):
        end, _ = find_head(bytearray(whole), 0)
        if end is None:
            return
        with contextlib.suppress(Malformed):
            found = parse_request(whole[:end])
            again = write_head(f"{found.method} {found.target} HTTP/1.{found.minor}", found.fields)
            assert parse_request(again) == found
            assert again.count(b"\n") == again.count(b"\r\n") == 2 + len(found.fields)
        with contextlib.suppress(Malformed):
            parse_response(whole[:end], method="GET")


def chunks(data: bytes) -> None:
    if not data:
        return
    step, is_request, rest = data[0] + 1, data[0] % 2 == 0, data[1:]
    whole, pieces = Chunked(is_request=is_request), Chunked(is_request=is_request)
    one = whole.feed(rest)[0]
    many = b"".join(pieces.feed(rest[at : at + step])[0] for at in range(0, len(rest), step) if not pieces.done)
    assert (one, whole.done, str(whole.broken)) == (many, pieces.done, str(pieces.broken))
    if whole.done:
        again = Chunked(is_request=True)
        assert again.feed(one) == (one, b"")
        assert again.done


def hello(data: bytes) -> None:
    if not data:
        return
    step, rest = data[0] + 1, data[1:]

    def read(pieces: int) -> object:
        reader, buffer, found = HandshakeReader(), bytearray(), None
        try:
            for at in range(0, len(rest), pieces):
                buffer += rest[at : at + pieces]
                found = read_hello(reader, buffer)
                if found is not None:
                    return found, reader.end
        except Malformed as bad:
            return bad.why
        return None

    assert read(step) == read(len(rest) or 1)
    with contextlib.suppress(Malformed):
        is_retry(HandshakeReader(), bytearray(rest))


def first_bytes(data: bytes) -> None:
    """Decided once, the same in any pieces; a first message lies within what was read."""
    for port in (443, 5432):
        for greeted in (None, Protocol.MYSQL):
            decided: set[object] = set()
            for at in range(1, min(len(data), 200) + 1):
                try:
                    found = read_opening(data[:at], port, greeted)
                except UnknownProtocol:
                    decided.add(None)
                    continue
                if found is None:
                    assert not decided
                else:
                    assert found.length <= at
                    decided.add(found)
            assert len(decided) <= 1
    with contextlib.suppress(UnknownProtocol):
        read_greeting_of(data)
    for protocol in Protocol:
        is_answered(protocol, data)


def socks(data: bytes) -> None:
    read_greeting(bytearray(data))
    with contextlib.suppress(Malformed):
        found = read_request(bytearray(data))
        assert found is None or found[0] <= len(data)


def dns(data: bytes) -> None:
    found = answer(data, names())
    assert len(found.reply) <= len(data) + 27
    assert not found.reply or found.reply[:2] == data[:2]
    stream, pieces = DnsStream(names()), DnsStream(names())
    many = [one for at in range(0, len(data), 7) for one in pieces.receive(data[at : at + 7])]
    assert tuple(many) == stream.receive(data)


def conversation(data: bytes) -> None:
    """The first byte says which face and how the rest is cut; a NUL NUL parts the client's bytes from the host's."""
    if not data:
        return
    face, step = data[0] % 4, data[0] // 4 + 1
    said, _, answered = data[1:].partition(b"\0\0")
    table = names()
    talk = Conversation(Terms(grant=GRANT, names=table))
    pending: list[ev.Event] = [_opened(face, table)]
    pending += [ev.ClientData(said[at : at + step]) for at in range(0, len(said), step)]
    pending += [ev.UpstreamData(answered[at : at + step]) for at in range(0, len(answered), step)]
    _play(talk, [*pending, ev.ClientEof(), ev.UpstreamEof()])


def _opened(face: int, table: NameTable) -> ev.Event:
    if face == 3:
        return ev.ClientOpened(face=Face.PROXY, local_address=ip_address("127.0.0.1"), local_port=1023)
    host, port = (("a.test", 80), ("a.test", 443), ("b.test", 22))[face]
    address = table.address_of(host)
    assert address is not None
    return ev.ClientOpened(face=Face.TRANSPARENT, local_address=address, local_port=port)


def _play(talk: Conversation, pending: list[ev.Event]) -> None:
    is_over = False
    while pending:
        event = pending.pop(0)
        side = Side.UPSTREAM if isinstance(event, ev.UpstreamData) else Side.CLIENT
        if isinstance(event, ev.ClientData | ev.UpstreamData) and not talk.wants(side):
            continue
        for command in talk.receive(event):
            assert not is_over, "a command after the end"
            match command:
                case ev.Resolve(host):
                    assert host in ("a.test", "b.test") or host.endswith(".s.test")
                    pending.insert(0, ev.Resolved((PUBLIC,)))
                case ev.Dial(address=address):
                    assert address == PUBLIC
                    pending.insert(0, ev.UpstreamOpened())
                case ev.CloseAll() | ev.Relay():
                    is_over = True
                case _:
                    pass
        assert len(talk._inbox) <= 2 * READ_AHEAD
        assert len(talk._answer) <= 2 * READ_AHEAD


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one for one in (hosts, heads, chunks, hello, first_bytes, socks, dns, conversation)
} | parsers.TARGETS

_HELLO = client_hello("a.test", extension(0xFE0D, b"x"))
_GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
SEEDS: dict[str, tuple[bytes, ...]] = {
    "hosts": (
        b"a.test:80",
        b"[::ffff:1.2.3.4]:80",
        b"http://a.test:81/x?y",
        b"*.s.test",
        b"10.0.0.0/8",
        b"xn--bcher-kva.de",
    ),
    "heads": (
        _GET,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close",
        b"CONNECT a.test:443 HTTP/1.0",
    ),
    "chunks": (b"\x035\r\nhello\r\n0\r\n\r\n", b"\x025;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\nrest"),
    "hello": (
        b"\x10" + _HELLO,
        b"\x01\x16\x03\x01\0\x01\x01",
        b"\x02\x16\x03\x03\0\x2a\x02\0\0\x26\x03\x03" + bytes(32),
    ),
    "first_bytes": (
        *(_GET, b"SSH-2.0-x\r\n", b"PROXY TCP4 ", b"\r\n\r\n\0\r\nQUIT\n", b"\x16\x03\x01", b"*1\r\n$4\r\nPING\r\n"),
        *(b"0031git-upload-pack /x\0host=a.test\0\0version=2\0", b"\0\0\0\x08\x04\xd2\x16\x2f", b" \0\0\1" + bytes(40)),
        b"\0\0\0\x10\0\3\0\0user\0a\0\0",
    ),
    "socks": (b"\x05\x01\x00", b"\x05\x01\x00\x03\x06a.test\x01\xbb", b"\x05\x01\x00\x04" + bytes(18)),
    "dns": (
        bytes.fromhex("beef01000001000000000000 01610474657374000001 0001"),
        bytes.fromhex("beef01000001000000000001 01780173047465737400001c0001 000029100000000000 0000"),
    ),
    "conversation": (
        b"\x1c" + _GET + _GET + b"\0\0HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"\x83GET http://x.s.test/ HTTP/1.1\r\nHost: x.s.test\r\n\r\n",
        b"\x83CONNECT a.test:443 HTTP/1.1\r\n\r\n" + _HELLO,
        b"\x83\x05\x01\x00\x05\x01\x00\x03\x06a.test\x01\xbb" + _HELLO,
        b"\x81" + _HELLO,
        b"\x82SSH-2.0-x\r\n",
    ),
} | parsers.SEEDS
