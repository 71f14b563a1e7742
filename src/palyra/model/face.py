"""What of the network a sandbox with granted hosts shows inside: addresses, listeners and names, all of them ours.

Made from a grant alone (egress/face), so it stands in the plan, is approved and attested with it, and two calls with
the same grant can use each other's prepared sandboxes. Opening it is inside/listeners, answering egress/server.
"""

from __future__ import annotations

from palyra.canon import Json
from palyra.model.net import HostPattern
from palyra.values import dataclass

DNS_ADDRESS = PROXY_ADDRESS = "127.0.0.1"
DNS_PORT = 53
PROXY_PORT = 1023
"""Below 1024: a program without capabilities can never have wanted that port for itself."""
SYNTHETIC = "198.18.0.0/15"
"""Benchmarking space, which nobody routes: every granted name has an address of its own in it."""
ANY_V4, ANY_V6 = "0.0.0.0", "::"  # noqa: S104  # inside an empty network namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class NetFace:
    names: tuple[tuple[str, str], ...] = ()
    """(granted name, its own synthetic address)."""
    spare: tuple[str, ...] = ()
    """Synthetic addresses for names below a granted suffix, handed out in this order as they are first asked for."""
    local: tuple[str, ...] = ()
    """Networks that are local inside: the synthetic range and every granted address."""
    tcp: tuple[tuple[str, int], ...] = ()
    """(address, port) of every listener beside the name server's and the proxy's; 0.0.0.0 and :: stand for any."""

    def as_json(self) -> dict[str, Json]:
        return {
            "names": [list(pair) for pair in self.names],
            "spare": list(self.spare),
            "local": list(self.local),
            "tcp": [list(pair) for pair in self.tcp],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An open socket inside a sandbox's network; whoever holds it closes it."""

    kind: str
    """dns_udp, dns_tcp, proxy or tcp."""
    address: str
    port: int
    fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What programs in a sandbox trust where TLS of some hosts is ended outside of it."""

    hosts: tuple[HostPattern, ...]
    bundle: bytes
    """Certificates in PEM: the machine's own, and the authority of this process."""
    authority: bytes = b""
    """The last of them."""
    system_path: str = ""
    """Where the machine's programs look for theirs; empty where that is not one file."""
