"""The line between a daemon and a node: orders and frames on one connection beside Ray, whose own way costs a short
call more than all else together.

A message is its length, a channel, a kind and a body; a channel is one order. Rules: a node says a number when somebody
connects, and hears nobody who does not sign it, with the node's name and start, by the cluster's key; until then it
takes one short message, within seconds, from few at once. Orders are signed one by one and answers by the node, so the
line carries no trust of its own: who breaks it makes a node lost, and the call goes elsewhere with the next epoch.
Whoever closes a channel, or the line, ends its calls. Not here: which line to take (cluster/ray_link).
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Protocol, cast

from palyra.cluster.batches import Outlet
from palyra.cluster.greeting import check_greeting, sign_greeting
from palyra.errors import TrustError
from palyra.signing import PublicKey, SigningKey

MEET_S = 5.0
MOST_STRANGERS = 16
MOST_GREETING, MOST_ORDER, MOST_FRAME = 4 << 10, 16 << 20, 16 << 20
_HEAD, _NUMBER = 9, 64
NUMBER, GREETING, WELCOME, ORDER, CANCEL, FRAME, LAST = range(7)


class LineLost(ConnectionError):
    """The other side is gone."""


class _Line(asyncio.Protocol, ABC):
    """Messages over a connection."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._buffer = most_bytes, bytearray()
        self.transport: asyncio.Transport | None = None
        self._room: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _HEAD:
            size = int.from_bytes(self._buffer[:4], "big")
            if size > self._most:
                self.abort()
                return
            if len(self._buffer) < _HEAD + size:
                return
            channel, kind = int.from_bytes(self._buffer[4:8], "big"), self._buffer[8]
            body = bytes(self._buffer[_HEAD : _HEAD + size])
            del self._buffer[: _HEAD + size]
            self.received(channel, kind, body)

    @abstractmethod
    def received(self, channel: int, kind: int, body: bytes) -> None: ...

    def tell(self, channel: int, kind: int, body: bytes = b"") -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(len(body).to_bytes(4, "big") + channel.to_bytes(4, "big") + bytes([kind]) + body)

    def abort(self) -> None:
        self._buffer.clear()
        if self.transport is not None:
            self.transport.abort()

    # ── a slow reader makes the writer wait ──

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def room(self) -> asyncio.Future[None] | None:
        return self._room


# ── a node's end ─────────────────────────────────────────────────────────────


class Server(Protocol):
    """A node (cluster/node fits)."""

    node_id: str
    start: str
    cluster_key: PublicKey

    async def serve(self, order: bytes, frames: Outlet) -> None: ...


class NodeEnds:
    """Listens on the address that Ray has here; every connection is a daemon's, once it has shown that."""

    def __init__(self, node: Server) -> None:
        self._node, self.strangers = node, 0
        self.known: set[_NodeEnd] = set()
        self._listening: asyncio.Server | None = None

    async def open(self, host: str) -> int:
        """The port."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: _NodeEnd(self._node, self), host, 0)
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for end in tuple(self.known):
            end.abort()


class _NodeEnd(_Line):
    def __init__(self, node: Server, ends: NodeEnds) -> None:
        super().__init__(MOST_GREETING)
        self._node, self._ends = node, ends
        self._number, self._is_known = os.urandom(32).hex(), False
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._ends.strangers += 1
        if self._ends.strangers > MOST_STRANGERS:
            self.abort()
            return
        self._late = asyncio.get_running_loop().call_later(MEET_S, self.abort)
        self.tell(0, NUMBER, self._number.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._met()
        self._ends.known.discard(self)
        for task in self._calls.values():
            task.cancel()
        self.resume_writing()

    def received(self, channel: int, kind: int, body: bytes) -> None:
        if not self._is_known:
            self._meet(kind, body)
        elif kind == ORDER and channel not in self._calls:
            task = asyncio.ensure_future(self._node.serve(body, _Channel(self, channel)))
            self._calls[channel] = task
            task.add_done_callback(lambda done: self._end(channel, done))
        elif kind == CANCEL:
            if channel in self._calls:
                self._calls[channel].cancel()
        else:
            self.abort()

    def _meet(self, kind: int, body: bytes) -> None:
        try:
            if kind != GREETING:
                raise TrustError("A peer did not send its greeting.")
            check_greeting(body, self._node.cluster_key, self._node.node_id, self._node.start, self._number)
        except TrustError:
            self.abort()
            return
        self._met()
        self._ends.known.add(self)
        self._is_known, self._most = True, MOST_ORDER
        self.tell(0, WELCOME)

    def _met(self) -> None:
        """Known or gone: in either case no stranger any more."""
        if not self._is_known and self._number:
            self._ends.strangers -= 1
            self._number = ""
        if self._late is not None:
            self._late.cancel()

    def _end(self, channel: int, done: asyncio.Task[None]) -> None:
        self._calls.pop(channel, None)
        if not done.cancelled() and done.exception() is not None:
            self.abort()  # without a last frame its daemon would wait; the line's end tells it


class _Channel:
    """What a call says goes into the line as it says it."""

    def __init__(self, line: _NodeEnd, channel: int) -> None:
        self._line, self._channel = line, channel

    def put(self, frame: bytes) -> None:
        self._line.tell(self._channel, FRAME, frame)

    def put_last(self, frame: bytes) -> None:
        self._line.tell(self._channel, LAST, frame)

    def room(self) -> asyncio.Future[None] | None:
        return self._line.room()


# ── a daemon's end ───────────────────────────────────────────────────────────


class DaemonEnd(_Line):
    def __init__(self, greet: Callable[[str], bytes]) -> None:
        super().__init__(MOST_FRAME)
        self._greet = greet
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open: dict[int, _Heard] = {}
        self._channels = 0
        self.is_open = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if not self._welcome.done():
            self._welcome.set_exception(LineLost())
        for heard in self._open.values():
            heard.lose()
        self.resume_writing()

    def received(self, channel: int, kind: int, body: bytes) -> None:
        if kind in (FRAME, LAST) and channel in self._open:
            self._open[channel].hear(body, is_last=kind == LAST)
        elif kind == NUMBER and not self.is_open and len(body) == _NUMBER:
            self.tell(0, GREETING, self._greet(body.decode("ascii", "replace")))
        elif kind == WELCOME and not self._welcome.done():
            self.is_open = True
            self._welcome.set_result(None)

    async def welcomed(self) -> None:
        await self._welcome

    async def send(self, order: bytes) -> AsyncGenerator[bytes, None]:
        """The node's frames; `LineLost` when the line ends before they do."""
        if not self.is_open:
            raise LineLost
        self._channels = channel = (self._channels + 1) % (1 << 32)
        heard = self._open[channel] = _Heard()
        self.tell(channel, ORDER, order)
        try:
            while True:
                while heard.waiting:
                    yield heard.waiting.popleft()
                if heard.is_over:
                    return
                await heard.more()
        finally:
            del self._open[channel]
            if not heard.is_over:
                self.tell(channel, CANCEL)


class _Heard:
    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.is_over, self._is_lost = False, False
        self._more: asyncio.Future[None] | None = None

    def hear(self, frame: bytes, *, is_last: bool) -> None:
        self.waiting.append(frame)
        self.is_over |= is_last
        self._wake()

    def lose(self) -> None:
        self._is_lost = True
        self._wake()

    async def more(self) -> None:
        if self._is_lost:
            raise LineLost
        self._more = asyncio.get_running_loop().create_future()
        await self._more

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


async def connect(host: str, port: int, *, node_id: str, node_start: str, key: SigningKey) -> DaemonEnd:
    """A line to a node; `OSError` when there is no way, or no welcome."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(MEET_S):
            _, end = await loop.create_connection(
                lambda: DaemonEnd(lambda number: sign_greeting(key, node_id, node_start, number)), host, port
            )
            try:
                await end.welcomed()
            except BaseException:
                end.abort()
                raise
    except TimeoutError as error:
        raise LineLost from error
    return end
