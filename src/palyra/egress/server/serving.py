"""Everything that listens for one call: its name server, its proxy, its granted ports; until the call is over.

Rules: all of it runs on the engine's loop and nothing in it waits; connections are bounded at once, in all and for the
whole process, and one too many is reset at once, so a flood costs the program its time and us nothing; lines that say
nothing for too long are closed, sooner where others have none (room); when the call ends, every socket is. What came of
each connection is in the records.

Not here: one connection (line), what is allowed (egress/conversation), opening the listeners (launch/network).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Protocol

from palyra.egress import events as ev
from palyra.egress.conversation import Conversation
from palyra.egress.credentials import Credential
from palyra.egress.hosts import Address, embedded
from palyra.egress.limits import EgressLimits
from palyra.egress.names import NameTable
from palyra.egress.records import Records
from palyra.egress.server.line import Line
from palyra.egress.server.names import NameServer
from palyra.egress.server.room import Room
from palyra.egress.server.tls import Tls
from palyra.egress.terms import Terms
from palyra.model.face import Listener
from palyra.model.outcome import Connection
from palyra.model.plan import ProcessPlan
from palyra.values import dataclass

log = logging.getLogger("palyra.egress")

_ACCEPTS_AT_ONCE = 64
"""Connections taken before everyone else on the loop has a turn."""
_OUT_OF_FILES_S = 0.05
_SWEEP_S = 1.0


class Dials(Protocol):
    """egress/dial.Dialer, by shape."""

    async def resolve(self, host: str) -> tuple[Address, ...]: ...
    async def connect(self, address: Address, port: int) -> socket.socket: ...


class Certificates(Protocol):
    """authority.Authority, by shape."""

    def context_for(self, host: str) -> ssl.SSLContext: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Interception:
    """How TLS of marked hosts is ended: our certificates inside, verified connections outside."""

    certificates: Certificates
    upstream: ssl.SSLContext


class EgressServer:
    """One a process; `serve` for each call."""

    def __init__(
        self,
        dials: Dials,
        limits: EgressLimits | None = None,
        *,
        interception: Callable[[bytes], Interception | None] | None = None,
    ) -> None:
        """`interception`: by the certificate of the authority that a sandbox trusts."""
        self._dials = dials
        self._limits = limits or EgressLimits()
        self._interception = interception
        self._room = Room()

    def serve(
        self, plan: ProcessPlan, listeners: Sequence[Listener], credentials: Sequence[Credential] = ()
    ) -> Serving:
        """Takes the listeners over. Answers until `finish`. `credentials` are added outside, each on its host alone."""
        return Serving(
            plan,
            listeners,
            credentials,
            dials=self._dials,
            limits=self._limits,
            room=self._room,
            interception=self._interception(plan.authority) if plan.intercepted and self._interception else None,
        )


class Serving:
    def __init__(
        self,
        plan: ProcessPlan,
        listeners: Sequence[Listener],
        credentials: Sequence[Credential],
        *,
        dials: Dials,
        limits: EgressLimits,
        room: Room,
        interception: Interception | None,
    ) -> None:
        assert plan.face is not None
        self._loop = asyncio.get_running_loop()
        self._dials = dials
        self._limits = limits
        self._room = room
        self._interception = interception
        self._records = Records()
        self._names = NameTable(plan.net, plan.face)
        self._terms = Terms(
            grant=plan.net, names=self._names, credentials=tuple(credentials), intercepted=plan.intercepted
        )
        self._lines: set[Line] = set()
        self._accepted = self._bytes = 0
        self._over = False
        self._name_server = NameServer(self._names, self._record)
        self._sockets = [(socket.socket(fileno=one.fd), one) for one in listeners]
        for sock, one in self._sockets:
            sock.setblocking(False)
            self._loop.add_reader(sock, self._on_ready(sock, one.kind))
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)
        room.enter(self)

    def finish(self) -> tuple[Connection, ...]:
        """Close everything; what came of each connection. A second time it only tells again."""
        if not self._over:
            self._over = True
            self._sweeping.cancel()
            self._stop_listening()
            for line in tuple(self._lines):
                line.abort()
            self._name_server.close()
            self._room.leave(self)
        return self._records.connections()

    # ── what a line needs ──

    async def resolve(self, host: str) -> tuple[Address, ...]:
        return await self._dials.resolve(host)

    async def connect(self, address: Address, port: int) -> socket.socket:
        return await self._dials.connect(address, port)

    def tls(self, side: ev.Side, host: str, received: bytes) -> Tls:
        if self._interception is None:
            raise OSError(0, "this process cannot end TLS")
        if side is ev.Side.UPSTREAM:
            return Tls(self._interception.upstream, host=host)
        return Tls(self._interception.certificates.context_for(host), host=None, received=received)

    def rule(self, ruled: ev.Ruled) -> int:
        return self._records.open(ruled)

    def count(self, record: int, *, up: int = 0, down: int = 0) -> bool:
        self._records.count(record, up=up, down=down)
        self._bytes += up + down
        return self._bytes <= self._limits.total_bytes

    def closed(self, line: Line) -> None:
        self._lines.discard(line)
        self._room.give_back()

    # ── what the room needs ──

    @property
    def line_count(self) -> int:
        return len(self._lines)

    def give_one_up(self) -> None:
        min(self._lines, key=lambda line: line.active_s).abort()

    # ── listening ──

    def _on_ready(self, sock: socket.socket, kind: str) -> Callable[[], None]:
        match kind:
            case "dns_udp":
                return lambda: self._name_server.answer(sock)
            case "dns_tcp":
                return lambda: self._accept(sock, self._name_server.open)
            case _:
                face = ev.Face.PROXY if kind == "proxy" else ev.Face.TRANSPARENT
                return lambda: self._accept(sock, lambda client: self._open(client, face))

    def _accept(self, listener: socket.socket, opened: Callable[[socket.socket], None]) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause(listener, opened)
                    return
                continue  # the client gave up before it was accepted
            try:
                client.setblocking(False)
                opened(client)
            except OSError:  # it went away again before anything was said
                client.close()
            if listener.fileno() < 0:
                return

    def _pause(self, listener: socket.socket, opened: Callable[[socket.socket], None]) -> None:
        self._loop.remove_reader(listener)

        def again() -> None:
            if listener.fileno() >= 0:
                self._loop.add_reader(listener, self._accept, listener, opened)

        self._loop.call_later(_OUT_OF_FILES_S, again)

    def _open(self, client: socket.socket, face: ev.Face) -> None:
        self._accepted += 1
        address, port = client.getsockname()[:2]
        where = embedded(ip_address(address.partition("%")[0]))
        if self._accepted > self._limits.connections:
            self._record(_too_many(where, port, f"more than {self._limits.connections} connections in one call"))
            _reset(client)
            self._stop_listening()
            return
        if len(self._lines) >= self._limits.connections_at_once or not self._room.take(self):
            self._record(_too_many(where, port, "too many connections at once"))
            _reset(client)
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = Line(client, Conversation(self._terms), self)
        self._lines.add(line)
        line.open(ev.ClientOpened(face=face, local_address=where, local_port=port))

    def _record(self, ruled: ev.Ruled) -> None:
        self._records.open(ruled)

    def _stop_listening(self) -> None:
        """Whoever connects from now on is refused by the kernel."""
        for sock, _ in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._sockets = []

    def _sweep(self) -> None:
        quiet_since = self._loop.time() - self._limits.idle_s
        oldest = self._loop.time() - self._limits.total_s
        for line in tuple(self._lines):
            if line.active_s < quiet_since or line.opened_s < oldest:
                line.abort()
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)


def _too_many(address: Address, port: int, why: str) -> ev.Ruled:
    return ev.Ruled(host=str(address), port=port, ruling=ev.Ruling.REFUSED, why=why)


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()
