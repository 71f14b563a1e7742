"""What a connection's first bytes are: TLS, HTTP, or anything else. Never wrong in the direction of "else".

On a port that is not 80 or 443 a granted host may be spoken to in any protocol, but what a host of many names would
read as TLS or HTTP must be judged as such. So the reading here is as wide as the widest server's, each of these tried:
blank lines before the request, any method, tabs for spaces, NUL (Python's); RTSP and ICE in HTTP's place (Node's); no
version, or any (Python's, Java's); TLS records of a version that never was, and alerts before the hello (Go's,
BoringSSL's). Where a first line alone does not tell, what follows does: a Host, or an empty line behind a head. The
strict reader behind it refuses what is odd. A PROXY protocol header is never passed on: it says who the client is.

Not here: judging what was found (egress/conversation).
"""

from __future__ import annotations

import re
from enum import StrEnum

MAX_LINE = 16_384
MAX_FIELD = 1 << 20
MAX_FIELDS = 4096
"""More than servers take: what is longer is no head."""
_BLANK = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0"
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BEHIND_METHOD = b"\t\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0"
"""What RFC 9112, 3 lets a lenient server take for the space behind a method, and what Python does."""
_PROTOCOL = re.compile(rb"(?:HTTP|RTSP|ICE)/", re.IGNORECASE)
_LONGEST_PROTOCOL = len(b"HTTP/")
_NAMED = re.compile(rb"[\0-\x20\x7f-\xa0]*host[\0-\x20\x7f-\xa0]*:", re.IGNORECASE)
_END = re.compile(rb"[\r\n]")
_PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_PREFIX = 64
_RECORDS = range(0x14, 0x19)


class Kind(StrEnum):
    UNDECIDED = "undecided"
    """More bytes are needed."""
    LOOSE = "loose"
    """Not a request in its usual form, and may become one that some server takes: to be watched while it goes out."""
    TLS = "tls"
    HTTP = "http"
    PROXY_HEADER = "proxy_header"
    OTHER = "other"


OPEN = (Kind.UNDECIDED, Kind.LOOSE)


class Sniffer:
    """Given all that the client says, in any pieces; `kind` never changes once it is decided."""

    def __init__(self) -> None:
        self.kind = Kind.UNDECIDED
        self.has_method = True
        """What there is of the first line begins as a request in its usual form does."""
        self._start = bytearray()
        self._text = 0
        """Where the first line begins: behind what servers step over."""
        self._looked = 0
        """How much of it was looked at: each byte once, or a line that comes byte by byte would be read thousands of
        times, in everybody's time."""
        self._in_method, self._has_nul = True, False
        self._fields: _Fields | None = None
        """Once the first line is whole and tells nothing."""

    def feed(self, data: bytes) -> Kind:
        if self.kind in OPEN:
            self.kind = self._begin(data) if self._fields is None else self._fields.feed(data)
        return self.kind

    def _begin(self, data: bytes) -> Kind:
        start = self._start
        start += data
        if start[:1] and start[0] in _RECORDS:
            if len(start) == 1:
                return Kind.UNDECIDED
            if start[1] < 0x10:
                return Kind.TLS
        if start.startswith(_PROXY_V2):
            return Kind.PROXY_HEADER
        if _PROXY_V2.startswith(bytes(start[: len(_PROXY_V2)])):
            return Kind.UNDECIDED
        while self._text < len(start) and start[self._text] in _BLANK:
            self._text += 1
        if self._text == len(start):
            return Kind.UNDECIDED if len(start) < MAX_LINE else Kind.HTTP
        return self._first_line()

    def _first_line(self) -> Kind:
        start, text = self._start, self._text
        if start.startswith((b"PROXY ", b"PROXY\t"), text):
            return Kind.PROXY_HEADER
        self._looked = max(self._looked, text)
        newline = start.find(b"\n", self._looked)
        if self._look(len(start) if newline < 0 else newline):
            return Kind.HTTP
        if newline >= 0:
            # One word is no request to anybody.
            if len(start[text:newline].decode("latin-1").split()) < 2:
                return Kind.OTHER
            self._fields = _Fields()
            return self._fields.feed(bytes(start[newline + 1 :]))
        if self.has_method and not self._has_nul:
            # Some servers skip any number of blank lines, and a line without an end may still become a request.
            return Kind.UNDECIDED if len(start) < MAX_LINE else Kind.HTTP
        if len(start) >= MAX_LINE:
            self._fields = _Fields(within=len(start))
        return Kind.LOOSE

    def _look(self, stop: int) -> bool:
        """At the line's bytes that are new, up to `stop`; whether they name a protocol of requests."""
        start, at = self._start, self._looked
        if self._in_method:
            found = _METHOD.match(start, at, stop)
            end = found.end() if found is not None else at
            self._in_method = end == stop
            self.has_method = end > self._text and (self._in_method or start[end] in _BEHIND_METHOD)
        self._has_nul = self._has_nul or start.find(b"\0", at, stop) >= 0
        self._looked = stop
        return _PROTOCOL.search(start, max(self._text, at - _LONGEST_PROTOCOL), stop) is not None


class _Fields:
    """Lines behind a first one that names no protocol: a head, if each has a colon and an empty one ends them; and if
    there is a Host, whatever stands before it, because some servers step over what they do not understand. `within`:
    so many bytes of the first one have come, and not its end."""

    def __init__(self, *, within: int = 0) -> None:
        self._prefix = b"-" if within else b""
        self._length, self._count = within, 0
        self._has_colon, self._is_behind_cr, self._is_odd = bool(within), False, False

    def feed(self, data: bytes) -> Kind:
        at = 0
        for end in _END.finditer(data):
            self._take(data[at : end.start()])
            is_half = data[end.start()] == 0x0A and self._is_behind_cr and not self._length
            if not is_half and (decided := self._line_ended()) is not None:
                return decided
            at, self._is_behind_cr = end.end(), data[end.start()] == 0x0D
        self._take(data[at:])
        if _NAMED.match(self._prefix):
            return Kind.HTTP
        return Kind.LOOSE if self._length < MAX_FIELD and self._count < MAX_FIELDS else Kind.OTHER

    def _take(self, piece: bytes) -> None:
        self._prefix += piece[: _PREFIX - len(self._prefix)]
        self._length += len(piece)
        self._has_colon = self._has_colon or b":" in piece

    def _line_ended(self) -> Kind | None:
        if _NAMED.match(self._prefix) or not (self._length or self._is_odd):
            return Kind.HTTP
        self._is_odd = self._is_odd or not self._has_colon
        self._prefix, self._length, self._has_colon = b"", 0, False
        self._count += 1
        return None


def sniff(data: bytes) -> Kind:
    return Sniffer().feed(data)
