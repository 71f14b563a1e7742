"""What the first bytes of a connection are: TLS, HTTP, or anything else. Never wrong in the direction of "else".

On a port that is not 80 or 443 a granted host may be spoken to in any protocol, but what a host of many names would
read as TLS or HTTP must be judged as such. So the reading here is as wide as the widest server's: blank lines before
the request, any method, any case, tabs for spaces. The strict reader behind it refuses what is odd. A PROXY protocol
header is never passed on: it says who the client is, and hides the request behind it.

Not here: judging what was found (egress/conversation).
"""

from __future__ import annotations

import re
from enum import StrEnum

MAX_LINE = 16_384
_BLANK = b"\r\n\t\x0b\x0c "
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[\t\x0b\x0c\r ]|$)")
"""What RFC 9112, 3 lets a lenient server take for the space behind a method."""
_PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n"


class Kind(StrEnum):
    UNDECIDED = "undecided"
    """More bytes are needed."""
    TLS = "tls"
    HTTP = "http"
    PROXY_HEADER = "proxy_header"
    OTHER = "other"


def sniff(data: bytes) -> Kind:
    if not data:
        return Kind.UNDECIDED
    if data[0] == 0x16:
        if len(data) == 1:
            return Kind.UNDECIDED
        return Kind.TLS if data[1] == 3 else Kind.OTHER
    if data.startswith(_PROXY_V2):
        return Kind.PROXY_HEADER
    if _PROXY_V2.startswith(data):
        return Kind.UNDECIDED
    return _sniff_text(data.lstrip(_BLANK), len(data))


def _sniff_text(text: bytes, length: int) -> Kind:
    if not text:
        return Kind.UNDECIDED if length < MAX_LINE else Kind.HTTP
    line, newline, _ = text[:MAX_LINE].partition(b"\n")
    # No server reads past a NUL, so what is behind one decides nothing.
    start, nul, _ = line.partition(b"\0")
    if not _METHOD.match(start):
        return Kind.OTHER
    if start.startswith((b"PROXY ", b"PROXY\t")):
        return Kind.PROXY_HEADER
    if b"HTTP/" in start.upper():
        return Kind.HTTP
    if newline or nul:
        return Kind.OTHER
    # Some servers skip any number of blank lines, and a line without an end may still become a request.
    return Kind.UNDECIDED if length < MAX_LINE else Kind.HTTP
