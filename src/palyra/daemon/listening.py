"""Touches: sockets. A listener that has so many connections at once and no more, from the moment each is accepted.

asyncio tells a protocol of a connection when its TLS is shaken hands on, and gives that a minute: until then nobody who
counts protocols knows of it, and whoever connects and says nothing takes a descriptor and the buffers of its TLS, as
often as it likes, without any credential.

Not here: what becomes of a connection afterwards (daemon/wire_guard).
"""

from __future__ import annotations

import socket
from asyncio.sslproto import SSLProtocol
from typing import Any

TLS_BUFFER_BYTES = 64 << 10


class BoundedListener(socket.socket):
    """Closes at once whoever comes when there are `most` already."""

    most = 1 << 30
    count = 0

    def accept(self) -> tuple[socket.socket, Any]:
        fd, address = self._accept()  # type: ignore[attr-defined]  # as the standard library's own does
        made = _Accepted(self.family, self.type, self.proto, fileno=fd)
        made.listener, self.count = self, self.count + 1
        if self.count > self.most:
            made.close()
            raise ConnectionAbortedError
        return made, address


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
