"""What every protocol here has in common: an authority, a refusal of bytes, and text that is safe to show.

Rules: an authority is `host[:port]` in ASCII, without user names, spaces, control or percent signs; an IPv6 address
stands in brackets; a port is one to five digits without a leading zero. One spelling comes out (egress/hosts).

Not here: whether what is named is granted (egress/rules).
"""

from __future__ import annotations

import re

from palyra.egress.hosts import is_address, parse_host
from palyra.errors import Rejected
from palyra.values import dataclass

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,254})(?::([1-9][0-9]{0,4}))?", re.ASCII)
SHOWN = 240


class Malformed(Exception):
    """Bytes that are not what they should be. `status` is how HTTP says it, `words` how another protocol does."""

    def __init__(self, why: str, *, status: int = 400, words: bytes = b"") -> None:
        super().__init__(why)
        self.why = why
        self.status = status
        self.words = words


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A host in its one spelling, and a port."""

    host: str
    port: int

    @property
    def is_literal(self) -> bool:
        return is_address(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_authority(text: str, *, default_port: int | None) -> Target:
    """Raises `Malformed`. `default_port` None: the port must be there."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise Malformed(f"{show(text)!r} is not host:port")
    port = int(found[2]) if found[2] else default_port
    if port is None or port > 65535:
        raise Malformed(f"{show(text)!r} has no usable port")
    return Target(parse_name(found[1]), port)


def parse_name(text: str) -> str:
    """A host by itself, ASCII. Raises `Malformed`."""
    if not text.isascii():
        raise Malformed(f"{show(text)!r} is not written in ASCII")
    try:
        return parse_host(text)
    except Rejected:
        raise Malformed(f"{show(text)!r} is not a host in its usual spelling") from None


def write_authority(target: Target, *, default_port: int) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == default_port else f"{host}:{target.port}"


def show(text: str) -> str:
    """Bounded and printable: peers choose these letters, people read them."""
    cut = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in cut)
