"""How a refusal is said, so that the program that asked shows it to whoever started it.

HTTP gets a page with the reason and the flag that would change it, SOCKS its reply code, TLS an alert; where nothing
has been spoken yet there is nothing to say, and the connection is reset.

Not here: what is refused (egress/conversation).
"""

from __future__ import annotations

from enum import StrEnum

from palyra.egress import socks
from palyra.egress.grammar import show
from palyra.egress.http import write_page

_ALERT = bytes((21, 3, 3, 0, 2, 2))
_ACCESS_DENIED, _INTERNAL_ERROR = b"\x31", b"\x50"
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    505: "HTTP Version Not Supported",
}


class Voice(StrEnum):
    NONE = "none"
    HTTP = "http"
    SOCKS = "socks"
    TLS = "tls"


def say_refused(voice: Voice, why: str, *, status: int) -> bytes:
    """Empty where nothing can be said."""
    return _say(voice, why, status=status, reply=socks.NOT_ALLOWED, alert=_ACCESS_DENIED)


def say_failed(voice: Voice, why: str, *, status: int) -> bytes:
    return _say(voice, why, status=status, reply=socks.UNREACHABLE, alert=_INTERNAL_ERROR)


def _say(voice: Voice, why: str, *, status: int, reply: int, alert: bytes) -> bytes:
    match voice:
        case Voice.HTTP:
            return write_page(status, _PHRASES[status], f"{show(why)}.")
        case Voice.SOCKS:
            return socks.write_reply(reply)
        case Voice.TLS:
            return _ALERT + alert
        case Voice.NONE:
            return b""
