"""One connection: uvicorn's HTTP/1.1 protocol with what it lacks. Who is at the other end of a Unix socket, how long
headers may take, how many connections there are, and our own shape for what is not HTTP.

Rules: headers have a deadline from the connection's or the request's first byte on, however many bytes trickle in; a
connection past the limit is told so and closed before anything is read, but for some of the owner's; who is answered
before the end of its body gets the answer. Answers that nobody reads have so much room together, what streams hold for
theirs too, and past that the largest of those that have long stood still go: a reader that waits (a pager) keeps its
line as long as there is room.

Not here: bodies (daemon/reading), TLS (daemon/server).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import cache
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from palyra.daemon.joining import JoiningTransport
from palyra.daemon.plain import PlainCycle, PlainHead, read_plain_head, scope_of
from palyra.daemon.routes import BEHIND, Refused
from palyra.daemon.strict_heads import StrictBuffer
from palyra.wiring.peers import depth_of, depth_of_peer

OWNERS_OWN = 32
"""Connections past the limit for the home's owner: whoever floods the door must not lock out who would stop it."""
MOST_UNREAD_BYTES = 256 << 20
"""Of answers that wait for their readers, on all connections together: thousands that ask for megabytes and never read
would take all of the memory."""
STANDS_STILL_S = 5.0
READ_BYTES = 64 << 10
"""Read at once, of asyncio's 256 KiB: what comes behind a request that is under way waits with its connection, counted
nowhere, and thousands of streams could each have as much waiting."""
_UCRED = struct.Struct("3i")


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Of a Unix socket's other end, as the kernel says; None for any other connection, and for a program in a sandbox:
    it has the owner's uid too, and sees the socket where that stands in its workspace or in a folder it may read."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(uid) if depth_of_peer(sock, pid) == depth_of("/proc/self/status") >= 0 else None
    return None


class GuardedProtocol(H11Protocol):
    header_timeout_s = 10.0
    max_connections = 4096
    owner_uid = -1
    max_header_bytes = 32_768
    _deadline: asyncio.TimerHandle | None = None
    _rest: asyncio.TimerHandle | None = None
    _plain_head: PlainHead | None = None
    """Of the last plain request: the next one's is mostly the same."""
    _plain_bytes = 0
    """How long a plain head may be."""
    _early = b""
    """What came while a plain request was under way."""
    most_unread_bytes = MOST_UNREAD_BYTES
    unread: ClassVar[dict[GuardedProtocol, tuple[float, int]]] = {}
    """Connections whose reader is behind: when it was last seen to take something, and how much was left then. One for
    each class, and so for each server."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES
        super().connection_made(JoiningTransport(transport))
        self.conn._receive_buffer = self._heads = StrictBuffer()
        uid = peer_uid(transport)
        if len(self.connections) > self.max_connections + (OWNERS_OWN if uid == self.owner_uid else 0):
            transport.write(too_many())  # at once, or not at all
            transport.abort()
            return
        if uid is not None:
            self.app_state = {**self.app_state, "peer_uid": uid}
        self._plain_bytes = self.max_header_bytes if self._is_set_up_plainly() else 0
        self._watch()

    def _is_set_up_plainly(self) -> bool:
        """Whether uvicorn was told nothing that would change what it does between a request and its answer."""
        config = self.config
        told = (self.access_log, self.root_path, self.server_state.default_headers, config.reset_contextvars)
        return not any(told) and self.limit_concurrency is None

    def data_received(self, data: bytes) -> None:
        if self._takes_plain(data):
            return
        if self._heads_too_large(data):
            self.send_400_response("")
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        early, self._early = self._early, b""
        if early and not self.transport.is_closing():
            self.data_received(early)
        else:
            self._watch()

    def _takes_plain(self, data: bytes) -> bool:
        """Begin a plain request; h11 has not heard of it, so what comes meanwhile must wait for its end."""
        if isinstance(self.cycle, PlainCycle) and not self.cycle.response_complete:
            self._early += data
            self.flow.pause_reading()
            return True
        conn, head = self.conn, self._plain_head
        if conn.their_state is not h11.IDLE or conn.our_state is not h11.IDLE or conn.trailing_data[0]:
            return False
        if head is None or not data.startswith(head.text):
            head = self._plain_head = read_plain_head(data)
        if head is None or len(data) != len(head.text) + head.body_bytes or len(head.text) > self._plain_bytes:
            return False
        self._unset_keepalive_if_required()
        self._unwatch()
        self._begin(data, head)
        return True

    def _begin(self, data: bytes, head: PlainHead) -> None:
        """As uvicorn does."""
        body = data[len(head.text) :]
        self.scope = scope_of(  # type: ignore[assignment]
            head,
            body,
            asgi={"version": self.asgi_version, "spec_version": "2.3"},
            server=self.server,
            client=self.client,
            scheme=self.scheme,
            state=self.app_state.copy(),
        )
        self.cycle = PlainCycle(
            data,
            body,
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread[self] = self.loop.time(), self.transport.get_write_buffer_size()
        self._make_room()

    def resume_writing(self) -> None:
        self.unread.pop(self, None)
        super().resume_writing()

    def _make_room(self) -> None:
        """End connections until what waits for readers fits. Who reads slowly is behind for as long as its answer
        lasts, and has the largest: it does not stand still, and those who never read go before it."""
        now = self.loop.time()
        written = {one: one.transport.get_write_buffer_size() for one in self.unread}
        self.unread.update((one, (now, size)) for one, size in written.items() if size < self.unread[one][1])
        sizes = {one: size + one.behind_bytes() for one, size in written.items()}
        left, moving_since = sum(sizes.values()), now - STANDS_STILL_S
        if left <= self.most_unread_bytes:
            return
        for one in sorted(sizes, key=lambda one: (self.unread[one][0] > moving_since, -sizes[one])):
            if left <= self.most_unread_bytes:
                return
            left -= sizes[one]
            self.unread.pop(one)
            one.transport.abort()

    def behind_bytes(self) -> int:
        """Of a stream, what is not even written yet: thousands of them could each hold on to a call's output."""
        behind: Callable[[], int] | None = getattr(self.cycle, "scope", {}).get(BEHIND)
        return behind() if behind is not None else 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.unread.pop(self, None)
        self._unwatch()
        self._watch_rest(is_left=False)
        super().connection_lost(exc)
        if isinstance(self.transport, JoiningTransport):
            self.transport.let_go()

    def _heads_too_large(self, data: bytes) -> bool:
        """h11 bounds what is incomplete; headers that come whole in one piece are bounded here."""
        if len(data) <= self.max_header_bytes // 2 or self.conn.their_state is not h11.IDLE:
            return False
        head = self.conn.trailing_data[0] + data
        return len(head) > self.max_header_bytes and head.find(b"\r\n\r\n", 0, self.max_header_bytes) < 0

    def _watch(self) -> None:
        """Between requests uvicorn's own timer runs; while headers are awaited, ours."""
        self._watch_rest(is_left=self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY)
        if self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None:
            self._unwatch()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.header_timeout_s, self._too_slow)

    def _watch_rest(self, *, is_left: bool) -> None:
        """What is left of a body that was answered before its end is read and dropped: closing at once would make the
        kernel reset the connection, and whoever still sends, a proxy above all, would never see the answer. Not for
        ever, though."""
        if is_left and self._rest is None and not self.transport.is_closing():
            self._rest = self.loop.call_later(self.header_timeout_s, self.transport.close)
        elif not is_left and self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            hint = "Send them faster, or raise daemon.header_timeout_ms."
            self._refuse(Refused(408, "SLOW", "The headers took too long to arrive.", hint))

    def send_400_response(self, msg: str) -> None:
        what = self._heads.fault or "This is not an HTTP request, or its headers are too large."
        self._refuse(Refused(400, "MALFORMED", what))

    def _refuse(self, refusal: Refused) -> None:
        body = bytes(refusal.response().body)
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        try:
            for event in (h11.Response(status_code=refusal.status, headers=headers), h11.Data(data=body)):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer was under way
            pass
        self.transport.close()


@cache
def too_many() -> bytes:
    """What a connection past the limit is told: the same bytes for each."""
    hint = "Close those that are idle, try again later, or raise daemon.max_connections."
    body = bytes(Refused(503, "BUSY", "The daemon has as many connections as it takes.", hint).response().body)
    head = f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


def make_protocol(
    *, header_timeout_s: float, max_connections: int, max_header_bytes: int, owner_uid: int = -1
) -> type[GuardedProtocol]:
    """A protocol class with these bounds: uvicorn makes its instances."""
    bounds = {
        "header_timeout_s": header_timeout_s,
        "max_connections": max_connections,
        "max_header_bytes": max_header_bytes,
        "owner_uid": owner_uid,
        "unread": {},
    }
    return type("BoundedProtocol", (GuardedProtocol,), bounds)
