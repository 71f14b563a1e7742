"""A connection's first bytes, judged by its port: what they are as far as they have come, and whether that may pass.

Rules: on 80 and 443 only TLS and HTTP are passed on, and HTTP begins with a method there; elsewhere anything is, but
what turns out to be TLS or HTTP after some of it has gone out unseen is refused: nobody judged its beginning.

Not here: how bytes are told apart (egress/sniff), what TLS and HTTP may say (egress/hello, egress/exchange), how long
more of them are waited for (egress/conversation).
"""

from __future__ import annotations

from palyra.egress.grammar import Malformed
from palyra.egress.sniff import Kind, Sniffer

JUDGED_PORTS = (80, 443)


class FirstBytes:
    def __init__(self) -> None:
        self._sniffer = Sniffer()
        self._seen = 0
        """Bytes at the front of the inbox that were looked at."""
        self._has_passed = False

    def look(self, inbox: bytearray, port: int) -> Kind:
        kind = self._sniffer.feed(bytes(inbox[self._seen :]))
        self._seen = len(inbox)
        if port in JUDGED_PORTS and kind in (Kind.LOOSE, Kind.HTTP):
            return Kind.HTTP if self._sniffer.has_method else Kind.OTHER
        return kind

    def check(self, kind: Kind, port: int) -> None:
        """Raises `Malformed` for what is decided and may not be passed on."""
        if kind is Kind.OTHER and port in JUDGED_PORTS:
            raise Malformed(f"on port {port} only TLS and HTTP are forwarded")
        if kind is Kind.PROXY_HEADER:
            raise Malformed("a PROXY protocol header is not forwarded")
        if kind in (Kind.TLS, Kind.HTTP) and self._has_passed:
            raise Malformed("what looks like a request arrived too slowly to be judged", status=408)

    def take(self, inbox: bytearray) -> bytes:
        """What was looked at and is still nothing: it may go, and is remembered to have gone."""
        gone = bytes(inbox)
        inbox.clear()
        self._seen = 0
        self._has_passed = self._has_passed or bool(gone)
        return gone
