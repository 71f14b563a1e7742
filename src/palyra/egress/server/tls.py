"""TLS of one side of a line, without a socket: bytes of the wire in, plain text out, and the other way round.

Not here: who may be intercepted (egress/conversation), certificates (authority), the sockets (line).
"""

from __future__ import annotations

import contextlib
import ssl

_PIECE_BYTES = 64 * 1024


class Tls:
    """Raises ssl.SSLError, an OSError, for whatever the peer does wrong."""

    def __init__(self, context: ssl.SSLContext, *, host: str | None, received: bytes = b"") -> None:
        """`host`: verify it, as a client; None: be the server."""
        self._wire, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._wire, self._out, server_side=host is None, server_hostname=host)
        self.is_ready = False
        if received:
            self._wire.write(received)

    def shake(self) -> bool:
        """One step; True in the step that finishes it."""
        if self.is_ready:
            return False
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_ready = True
        return True

    def feed(self, data: bytes | memoryview) -> None:
        """From the wire; empty at its end."""
        if data:
            self._wire.write(data)
        else:
            self._wire.write_eof()

    def read(self) -> tuple[list[bytes], bool]:
        """(plain text that is whole now, whether the peer has said all)."""
        pieces: list[bytes] = []
        try:
            while piece := self._object.read(_PIECE_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return pieces, False
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        return pieces, True

    def write(self, data: bytes | memoryview) -> None:
        self._object.write(data)

    def say_goodbye(self) -> None:
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()

    def take(self) -> bytes:
        """For the wire."""
        return self._out.read()
