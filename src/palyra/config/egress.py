"""`[egress]`: what bounds the connections of one call, and names the operator answers for.

`resolve` entries are `NAME=ADDRESS`, several for several addresses. They stand before the system's resolver and grant
nothing: the name must be granted, and an address that is not public must be granted by itself as well.

Not here: which hosts are granted (`allowed_egress_hosts`), using these values (egress/server, egress/dial).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressConfig:
    """`[egress]`."""

    resolve: tuple[str, ...] = ()
    """Names the operator answers for, before the system's resolver: ["registry.internal=10.0.0.5"]. The name must be
    granted, and a private address by itself too."""
    intercept: tuple[str, ...] = ()
    """Hosts, as in allowed_egress_hosts, whose TLS is ended outside the sandbox, so that credentials bound to them can
    be added. Programs inside trust a certificate authority that only this process has. Programs that pin certificates
    fail."""
    max_connections: int = 10_000
    """Connections of one call in all; then its listeners are closed."""
    max_connections_at_once: int = 256
    """Connections of one call at the same time; one more is reset."""
    max_bytes: int = 16 << 30
    """Bytes of one call, both ways together; then its connections are reset."""
    idle_timeout_s: int = 300
    """A connection that is idle in both directions for this long is closed."""
    connection_timeout_s: int = 86_400
    """The longest time one connection may live."""


RANGES = {
    "max_connections": (1, 1_000_000),
    "max_connections_at_once": (1, 10_000),
    "max_bytes": (1, 1 << 50),
    "idle_timeout_s": (1, 86_400),
    "connection_timeout_s": (1, 604_800),
}


def parse_resolve(entries: Sequence[str]) -> dict[str, tuple[IPv4Address | IPv6Address, ...]]:
    """Canonical name → addresses. Raises ValueError with a sentence."""
    table: dict[str, tuple[IPv4Address | IPv6Address, ...]] = {}
    for entry in entries:
        name, equals, text = entry.partition("=")
        name = name.strip().lower().rstrip(".")
        try:
            address = ip_address(text.strip().strip("[]"))
        except ValueError:
            raise ValueError(f"{entry!r} is not NAME=ADDRESS.") from None
        if not equals or not name or not name.isascii() or any(letter.isspace() for letter in name):
            raise ValueError(f"{entry!r} is not NAME=ADDRESS.")
        table[name] = (*table.get(name, ()), address)
    return table
