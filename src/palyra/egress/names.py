"""Names that were granted, each with an address of its own that exists only inside the sandbox.

Rules: addresses come from 198.18.0.0/15 (RFC 2544, on no real network), IPv4 only: one family is enough to say which
name was meant, and an AAAA question gets an empty answer, so programs go on with A. Exact names get theirs at once, in
the grant's order, so that the same grant gives the same table; a name below a granted suffix when it is first asked
for, up to `capacity`. An address of a smaller range that the grant itself names is never given away; where the grant
names the whole range or more, the table comes first. Nothing is ever taken back: a name keeps its address for the call.

Not here: DNS messages (egress/dns), where an address really leads (egress/conversation).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network

from palyra.egress.hosts import Address, embedded, parse_host, read_address
from palyra.egress.rules import DEFAULT_PORTS, judge_host
from palyra.errors import Rejected
from palyra.model.net import HostKind, NetGrant

SYNTHETIC = IPv4Network("198.18.0.0/15")
NAME_CAPACITY = 4096


class NameTable:
    """Granted name ↔ synthetic address, for one call. Grows, never shrinks; bounded."""

    def __init__(self, grant: NetGrant, *, capacity: int = NAME_CAPACITY) -> None:
        self._grant = grant
        self._capacity = min(capacity, SYNTHETIC.num_addresses - 2)
        self._held = _ranges_within(grant)
        self._next = int(SYNTHETIC.network_address) + 1
        self._addresses: dict[str, IPv4Address] = {}
        self._names: dict[IPv4Address, str] = {}
        for pattern in grant.hosts:
            if pattern.kind is HostKind.EXACT and pattern.value not in self._addresses:
                self._assign(pattern.value)

    def address_of(self, host: str) -> IPv4Address | None:
        """The name's address; None when no port of it is granted, it is an address, or the table is full."""
        try:
            name = parse_host(host)
        except Rejected:
            return None
        known = self._addresses.get(name)
        if known is not None:
            return known
        if read_address(name) is not None or not judge_host(self._grant, name, None).allowed:
            return None
        return self._assign(name)

    def name_of(self, address: Address) -> str | None:
        real = embedded(address)
        return self._names.get(real) if isinstance(real, IPv4Address) else None

    def entries(self) -> tuple[tuple[str, IPv4Address], ...]:
        return tuple(self._addresses.items())

    def _assign(self, name: str) -> IPv4Address | None:
        if len(self._addresses) >= self._capacity:
            return None
        last = int(SYNTHETIC.broadcast_address)
        while self._next < last:
            address = IPv4Address(self._next)
            self._next += 1
            if not any(address in network for network in self._held):
                self._addresses[name], self._names[address] = address, name
                return address
        return None


def _ranges_within(grant: NetGrant) -> tuple[IPv4Network, ...]:
    ranges = granted_networks(grant)
    return tuple(
        one for one in ranges if isinstance(one, IPv4Network) and one != SYNTHETIC and one.subnet_of(SYNTHETIC)
    )


def granted_networks(grant: NetGrant) -> tuple[IPv4Network | IPv6Network, ...]:
    """The ranges and single addresses that the grant writes as such: the transparent face answers for them too."""
    return tuple(ip_network(pattern.value) for pattern in grant.hosts if pattern.kind is HostKind.NETWORK)


def granted_ports(grant: NetGrant) -> tuple[int, ...]:
    """Every port that some pattern grants: where the transparent face listens."""
    ports = {port for one in grant.hosts for port in (DEFAULT_PORTS if one.port is None else (one.port,))}
    return tuple(sorted(ports))
