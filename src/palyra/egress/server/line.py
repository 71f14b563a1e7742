"""One accepted connection: reads and writes bytes, tells its conversation what happened, does what it asks for.

Rules: nothing blocks; a side is read only while the conversation wants it and the other side keeps up; what is still to
be sent goes out before a close, within a deadline; a failure of either socket ends this line and no other. After
`Relay` bytes are copied without asking, through one buffer that all lines of the process share.

Not here: what is allowed (egress/conversation), timers and connections under way (errands), how many lines there may be
and for how long (serving).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from palyra.egress import events as ev
from palyra.egress.events import Side
from palyra.egress.server.errands import Errands, Ways, words
from palyra.egress.server.flow import Flow, Held
from palyra.egress.server.tls import Tls

log = logging.getLogger("palyra.egress")

HIGH_WATER = 64 * 1024
"""Bytes that wait for a slow side before the other one is no longer read; many times that while little waits in all."""
READ_BYTES = 64 * 1024
LARGE_BYTES = 1 << 20
LINGER_S = 2.0
"""How long a closed line may still take to hand over its last bytes."""
_RESET = struct.pack("ii", 1, 0)
_shared = memoryview(bytearray(LARGE_BYTES))


class Talk(Protocol):
    """egress/conversation.Conversation, by shape."""

    def receive(self, event: ev.Event) -> tuple[ev.Command, ...]: ...
    def wants(self, side: Side) -> bool: ...


class House(Ways, Protocol):
    """What a line needs of the call it belongs to."""

    def rule(self, ruled: ev.Ruled) -> int:
        """Open a record; the number is its place."""

    def count(self, record: int, *, up: int = 0, down: int = 0) -> bool:
        """False when the call has used up its bytes."""

    def closed(self, line: Line) -> None: ...
    def tls(self, side: Side, host: str, received: bytes) -> Tls:
        """Of an intercepted host. Raises OSError where none can be made."""


class Line:
    def __init__(self, client: socket.socket, talk: Talk, house: House) -> None:
        self._loop = asyncio.get_running_loop()
        self._talk = talk
        self._house = house
        self._flows: dict[Side, Flow] = {Side.CLIENT: Flow(client, must_take=True)}
        self._errands = Errands(house, lambda event: self._guarded(lambda: self._tell(event)))
        self._lingering: asyncio.TimerHandle | None = None
        self._record = -1
        self._relaying = self._closing = self._over = self._reset = False
        self.opened_s = self.active_s = self._loop.time()
        """When it came, and when bytes last went either way."""

    def open(self, opened: ev.ClientOpened) -> None:
        self._guarded(lambda: self._tell(opened))

    def abort(self) -> None:
        """Close both sides now, the client's with a reset."""
        self._reset = True
        self._finish()

    # ── events ──

    def _guarded(self, step: Callable[[], None]) -> None:
        """One line's trouble stays its own."""
        if self._over:
            return
        try:
            step()
            if not self._over:
                self._settle()
        except OSError:
            self.abort()
        except Exception:
            log.exception("an egress connection failed inside Palyra")
            self.abort()

    def _tell(self, event: ev.Event) -> None:
        if self._closing or self._relaying or self._over:
            return
        for command in self._talk.receive(event):
            if not self._over:  # a command before it may have used up the call's bytes
                self._do(command)

    def _do(self, command: ev.Command) -> None:
        match command:
            case ev.SendClient(data):
                self._flows[Side.CLIENT].push(data)
            case ev.SendUpstream(data):
                self._flows[Side.UPSTREAM].push(data)
                self._count(up=len(data))
            case ev.Resolve(host):
                self._errands.resolve(host)
            case ev.Dial(address=address, port=port):
                self._errands.connect(address, port, self._keep)
            case ev.Ruled():
                self._record = self._house.rule(command)
            case ev.StartTimer(timer):
                self._errands.start(timer)
            case ev.StopTimer(timer):
                self._errands.stop(timer)
            case ev.HalfClose(side):
                self._flows[side].shut_wanted = True
            case ev.CloseUpstream():
                self._drop(Side.UPSTREAM)
            case ev.Relay():
                self._relaying = True
                self._errands.stop_timers()
            case ev.CloseAll(reset):
                self._close(reset=reset)
            case ev.StartTls(side=side, host=host, received=received):
                self._start_tls(side, host, received)

    # ── sockets ──

    def _settle(self) -> None:
        """Send what can be sent, see whether this is over, then wait for exactly what is wanted next."""
        for side, flow in tuple(self._flows.items()):
            flow.flush()
            if self._closing and side is Side.UPSTREAM and not flow.out:
                self._drop(side)
        if self._is_done():
            self._finish()
            return
        for side, flow in self._flows.items():
            self._watch(flow, read=self._may_read(side, flow), write=bool(flow.out), side=side)

    def _is_done(self) -> bool:
        flows = self._flows.values()
        if self._closing:
            client = self._flows[Side.CLIENT]
            handed_over = not client.out if self._reset else client.shut and client.eof
            return handed_over and Side.UPSTREAM not in self._flows
        return self._relaying and all(flow.eof and not flow.out for flow in flows)

    def _may_read(self, side: Side, flow: Flow) -> bool:
        if flow.eof:
            return False
        if flow.is_shaking_hands:
            return True
        if self._closing:
            return side is Side.CLIENT  # read and thrown away: unread bytes would turn the close into a reset
        other = self._flows.get(_other(side))
        if other is not None and other.waiting >= (LARGE_BYTES // 2 if Held.is_little() else HIGH_WATER):
            return False
        return self._relaying or self._talk.wants(side)

    def _watch(self, flow: Flow, *, read: bool, write: bool, side: Side) -> None:
        if read != flow.reading:
            flow.reading = read
            if read:
                self._loop.add_reader(flow.sock, self._readable, side)
            else:
                self._loop.remove_reader(flow.sock)
        if write != flow.writing:
            flow.writing = write
            if write:
                self._loop.add_writer(flow.sock, self._guarded, _nothing)
            else:
                self._loop.remove_writer(flow.sock)

    def _readable(self, side: Side) -> None:
        self._guarded(lambda: self._read(side))

    def _read(self, side: Side) -> None:
        flow = self._flows[side]
        is_judged = not (self._relaying or self._closing)
        size = READ_BYTES if (is_judged and side is Side.CLIENT) or not Held.is_little() else LARGE_BYTES
        try:
            data = flow.sock.recv(size) if is_judged else _shared[: flow.sock.recv_into(_shared, size)]
        except BlockingIOError:
            return
        except ConnectionError:
            if side is Side.CLIENT:
                raise
            data = b""  # a host that resets has said all it will say
        self.active_s = self._loop.time()
        if flow.tls is None:
            self._take(side, data)
        else:
            self._decrypt(side, flow.tls, data)

    def _take(self, side: Side, data: bytes | memoryview) -> None:
        """Plain text of one side; empty at its end."""
        if self._closing:
            self._flows[side].eof |= not data
        elif self._relaying:
            self._pass_on(side, memoryview(data))
        else:
            self._heard(side, data if isinstance(data, bytes) else bytes(data))

    def _start_tls(self, side: Side, host: str, received: bytes) -> None:
        try:
            tls = self._flows[side].tls = self._house.tls(side, host, received)
            self._decrypt(side, tls, None)
        except OSError as error:
            self._tell(ev.TlsFailed(side, words(error)))

    def _decrypt(self, side: Side, tls: Tls, wire: bytes | memoryview | None) -> None:
        """`wire` empty: its end; None: nothing new, go on with what is there."""
        if wire is not None:
            tls.feed(wire)
        try:
            started = tls.shake()
        except OSError as error:
            self._flows[side].push_wire()  # the alert that says why
            self._tell(ev.TlsFailed(side, words(error)))
            return
        self._flows[side].push_wire()
        if started:
            self._tell(ev.TlsStarted(side))
        if not tls.is_ready or self._flows.get(side) is None:
            return
        pieces, ended = tls.read()
        for piece in pieces:
            self._take(side, piece)
        if ended and not self._flows[side].eof:
            self._take(side, b"")

    def _heard(self, side: Side, data: bytes) -> None:
        if not data:
            self._flows[side].eof = True
            self._tell(ev.ClientEof() if side is Side.CLIENT else ev.UpstreamEof())
        elif side is Side.CLIENT:
            self._tell(ev.ClientData(data))
        else:
            self._count(down=len(data))
            self._tell(ev.UpstreamData(data))

    def _pass_on(self, side: Side, view: memoryview) -> None:
        """What the other socket takes at once is never copied again; the rest leaves the shared buffer."""
        target = self._flows[_other(side)]
        if not view:
            self._flows[side].eof = True
            target.shut_wanted = True
            return
        if side is Side.CLIENT:
            self._count(up=len(view))
        else:
            self._count(down=len(view))
        view = target.send_now(view)  # a host that is gone ends a relay whole
        if view:
            target.push(bytes(view))

    def _count(self, *, up: int = 0, down: int = 0) -> None:
        if self._record >= 0 and not self._house.count(self._record, up=up, down=down):
            self.abort()

    def _keep(self, sock: socket.socket) -> None:
        if self._over or self._closing:
            sock.close()
        else:
            self._flows[Side.UPSTREAM] = Flow(sock)

    # ── the end ──

    def _close(self, *, reset: bool) -> None:
        self._closing, self._reset = True, reset
        self._errands.stop_timers()
        self._flows[Side.CLIENT].shut_wanted = not reset
        self._lingering = self._loop.call_later(LINGER_S, self._finish)

    def _drop(self, side: Side) -> None:
        flow = self._flows.pop(side, None)
        if flow is not None:
            with contextlib.suppress(OSError):
                flow.flush()
            flow.forget()
            self._watch(flow, read=False, write=False, side=side)
            flow.sock.close()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        self._errands.give_up()
        if self._lingering is not None:
            self._lingering.cancel()
        if self._reset:
            with contextlib.suppress(OSError):
                self._flows[Side.CLIENT].sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for side in tuple(self._flows):
            self._drop(side)
        self._house.closed(self)


def _other(side: Side) -> Side:
    return Side.UPSTREAM if side is Side.CLIENT else Side.CLIENT


def _nothing() -> None:
    """A writable socket needs no step of its own: settling sends."""
