"""One socket of a line: what waits to be sent on it, its half-closes, and TLS where its side is intercepted."""

from __future__ import annotations

import contextlib
import socket
from collections import deque

from palyra.egress.server.tls import Tls


class Held:
    """Bytes that wait in all flows of this process. While they are few, reads are large and both sides of a line run
    ahead of each other, which is what makes a transfer quick; programs and hosts that do not read end that."""

    total = 0
    PLENTY = 32 << 20

    @classmethod
    def is_little(cls) -> bool:
        return cls.total < cls.PLENTY


class Flow:
    __slots__ = ("eof", "must_take", "out", "reading", "shut", "shut_wanted", "sock", "tls", "waiting", "writing")

    def __init__(self, sock: socket.socket, *, must_take: bool = False) -> None:
        self.sock = sock
        self.must_take = must_take
        """Without whom there is nobody to talk to: the client."""
        self.out: deque[memoryview] = deque()
        self.waiting = 0
        """Bytes in `out`."""
        self.tls: Tls | None = None
        self.eof = self.reading = self.writing = self.shut_wanted = self.shut = False

    @property
    def is_shaking_hands(self) -> bool:
        return self.tls is not None and not self.tls.is_ready

    def push(self, data: bytes | memoryview) -> None:
        """What is said to the peer."""
        if self.tls is None:
            self._queue(data)
        else:
            self.tls.write(data)
            self.push_wire()

    def push_wire(self) -> None:
        """What TLS itself has to say."""
        assert self.tls is not None
        data = self.tls.take()
        if data:
            self._queue(data)

    def send_now(self, view: memoryview) -> memoryview:
        """What the socket takes at once, past an empty queue; the rest comes back."""
        if self.tls is not None or self.out:
            return view
        try:
            return view[self.sock.send(view) :]
        except BlockingIOError:
            return view

    def flush(self) -> None:
        """Send what the socket takes now; then the half-close, if one is wanted."""
        while self.out:
            try:
                sent = self.sock.send(self.out[0])
            except BlockingIOError:
                return
            except ConnectionError:
                if self.must_take:
                    raise
                self.forget()  # a host that wants no more may still have an answer on its way
                self.shut = True
                return
            self.waiting -= sent
            Held.total -= sent
            if sent == len(self.out[0]):
                self.out.popleft()
            else:
                self.out[0] = self.out[0][sent:]
        if self.shut_wanted and not self.shut:
            self._shut()

    def _shut(self) -> None:
        self.shut = True
        with contextlib.suppress(OSError):  # not connected any more
            if self.tls is not None and self.tls.is_ready:
                self.tls.say_goodbye()
                self.sock.send(self.tls.take())
            self.sock.shutdown(socket.SHUT_WR)

    def _queue(self, data: bytes | memoryview) -> None:
        self.out.append(memoryview(data))
        self.waiting += len(data)
        Held.total += len(data)

    def forget(self) -> None:
        """What waits is not sent any more."""
        self.out.clear()
        Held.total -= self.waiting
        self.waiting = 0
