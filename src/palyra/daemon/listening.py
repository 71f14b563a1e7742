"""Touches: sockets. A listener that has so many connections at once and no more, from the moment each is accepted.

asyncio tells a protocol of a connection when its TLS is shaken hands on, and gives that a minute: until then nobody who
counts protocols knows of it, and whoever connects and says nothing takes a descriptor and the buffers of its TLS, as
often as it likes, without any credential.

Not here: what becomes of a connection afterwards (daemon/wire_guard).
"""

from __future__ import annotations

import socket
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import Any

TLS_BUFFER_BYTES = 64 << 10
READ_BYTES = 64 << 10


class BoundedListener(socket.socket):
    """Closes at once whoever comes when there are `most` already, with an answer where that costs nobody a wait."""

    most = 1 << 30
    answer = b""
    """Sent to them, whatever they ask; empty where it could not be read, as before TLS."""
    count = 0

    def accept(self) -> tuple[socket.socket, Any]:
        fd, address = self._accept()  # type: ignore[attr-defined]  # as the standard library's own does
        made = _Accepted(self.family, self.type, self.proto, fileno=fd)
        made.listener, self.count = self, self.count + 1
        if self.count > self.most:
            if self.answer:
                _say(made, self.answer)
            made.close()
            raise ConnectionAbortedError
        return made, address


def _say(line: socket.socket, answer: bytes) -> None:
    """A few hundred bytes, which a new connection has room for; what came already is dropped, because the kernel resets
    a connection that is closed on unread bytes, and the answer might go with it."""
    with suppress(OSError):
        line.setblocking(False)
        line.send(answer)
        line.shutdown(socket.SHUT_WR)
        line.recv(READ_BYTES)


class _Accepted(socket.socket):
    listener: BoundedListener | None = None

    def close(self) -> None:
        if self.listener is not None:
            self.listener.count -= 1
            self.listener = None
        super().close()


def keep_tls_small() -> None:
    """asyncio has 256 KiB ready for each TLS connection before it has said a word."""
    SSLProtocol.max_size = TLS_BUFFER_BYTES
