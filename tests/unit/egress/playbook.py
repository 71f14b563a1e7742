"""Conversations as playbooks: what happened on the left, what was asked for on the right. No sockets, no clocks."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from palyra.egress import events as ev
from palyra.egress.conversation import Conversation, Terms
from palyra.egress.events import Command, Event, Face, Ruled, Ruling, SendClient, SendUpstream
from palyra.egress.face import face_of
from palyra.egress.hosts import parse_grant, parse_pattern
from palyra.egress.names import NameTable
from palyra.model.net import EgressMode, NetGrant

PUBLIC = ip_address("1.1.1.1")
OTHER = ip_address("1.0.0.1")
OPENED, EOF, UPSTREAM_EOF = ev.UpstreamOpened(), ev.ClientEof(), ev.UpstreamEof()
RELAY, CLOSE, RESET = ev.Relay(), ev.CloseAll(), ev.CloseAll(reset=True)
RESOLVED = ev.Resolved((PUBLIC,))


class Play:
    def __init__(self, *patterns: str, credentials=(), intercepted=()) -> None:
        self.grant = NetGrant(EgressMode.STRICT, tuple(parse_grant(text) for text in patterns))
        face = face_of(self.grant)
        assert face is not None
        self.names = NameTable(self.grant, face)
        marked = tuple(parse_pattern(text) for text in intercepted)
        self.talk = Conversation(
            Terms(grant=self.grant, names=self.names, credentials=tuple(credentials), intercepted=marked)
        )
        self.commands: list[Command] = []

    def hear(self, *events: Event) -> list[Command]:
        """What the last of them led to, without timers."""
        last: tuple[Command, ...] = ()
        for event in events:
            last = self.talk.receive(event)
            self.commands += last
        return without_timers(last)

    def say(self, *pieces: bytes) -> list[Command]:
        return self.hear(*(ev.ClientData(piece) for piece in pieces))

    def answer(self, *pieces: bytes) -> list[Command]:
        return self.hear(*(ev.UpstreamData(piece) for piece in pieces))

    def transparent(self, host: str, port: int) -> Play:
        address = self.names.address_of(host) or ip_address(host)
        self.hear(ev.ClientOpened(face=Face.TRANSPARENT, local_address=address, local_port=port))
        return self

    def proxy(self) -> Play:
        self.hear(ev.ClientOpened(face=Face.PROXY, local_address=ip_address("127.0.0.1"), local_port=1023))
        return self

    def reach(self) -> list[Command]:
        """The host is found and connected."""
        return self.hear(RESOLVED, OPENED)

    @property
    def upstream(self) -> bytes:
        return b"".join(one.data for one in self.commands if isinstance(one, SendUpstream))

    @property
    def client(self) -> bytes:
        return b"".join(one.data for one in self.commands if isinstance(one, SendClient))

    @property
    def rulings(self) -> list[tuple[str, int, Ruling]]:
        return [(one.host, one.port, one.ruling) for one in self.commands if isinstance(one, Ruled)]

    @property
    def is_closed(self) -> bool:
        return any(isinstance(one, ev.CloseAll) for one in self.commands)

    @property
    def is_relayed(self) -> bool:
        return RELAY in self.commands

    @property
    def was_dialled(self) -> bool:
        return any(isinstance(one, ev.Dial) for one in self.commands)


def without_timers(commands: Iterable[Command]) -> list[Command]:
    return [one for one in commands if not isinstance(one, ev.StartTimer | ev.StopTimer)]


def granted(host: str, port: int, by: str | None = None) -> Ruled:
    return Ruled(host=host, port=port, ruling=Ruling.GRANTED, why=f"granted by {by or host}")


def dial(host: str, port: int, address=PUBLIC) -> ev.Dial:
    return ev.Dial(address=address, port=port, host=host)


def block(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + block(2, data)


def server_name(name: bytes, kind: int = 0) -> bytes:
    return extension(0, block(2, bytes((kind,)) + block(2, name)))


def hello_message(*extensions: bytes, name: bytes | None = None) -> bytes:
    inside = (server_name(name) if name is not None else b"") + b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + block(1, bytes(32)) + block(2, b"\x13\x01\x13\x02") + block(1, b"\0")
    return b"\x01" + block(3, body + block(2, inside))


def records(message: bytes, *, size: int = 16_384, kind: int = 22) -> bytes:
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(bytes((kind, 3, 1)) + block(2, piece) for piece in pieces)


def client_hello(name: str | None, *extensions: bytes, size: int = 16_384) -> bytes:
    return records(hello_message(*extensions, name=None if name is None else name.encode()), size=size)


RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def server_hello(random: bytes = bytes(32)) -> bytes:
    return records(b"\x02" + block(3, b"\x03\x03" + random + b"\0\x13\x01\0"))


RETRY = server_hello(RETRY_RANDOM)
