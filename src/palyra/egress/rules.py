"""Whether a network grant covers a host or an address.

Rules: an empty grant allows nothing. A name is matched by exact and suffix patterns, a suffix at a label boundary and
never the bare suffix itself; an address only by a pattern that is written as an address or CIDR. Without a port a
pattern means 80 and 443. Every address a name leads to must be public, unless the grant names its range too; one that
is not spoils the whole answer. A metadata address is reachable only by its own literal, granted exactly: never by a
name, never as part of a wider range.

Not here: reading patterns (egress/hosts), looking up and connecting (egress/dial), the kernel's wall (sandbox).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network

from palyra.egress.hosts import Address, AddressClass, classify_address, embedded, parse_host, read_address
from palyra.errors import Rejected
from palyra.model.net import EgressMode, HostKind, HostPattern, NetGrant
from palyra.values import dataclass

DEFAULT_PORTS = (80, 443)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    allowed: bool
    pattern: HostPattern | None = None
    """What granted it."""
    why: str = ""
    needs: tuple[HostPattern, ...] = ()
    """What would allow it, where a grant can."""
    is_raw: bool = False
    """All bytes may pass there."""


def judge_host(grant: NetGrant, host: str, port: int | None) -> Verdict:
    """Whether the grant covers this host as it is named. `port` None: any port that the grant has for it."""
    if grant.mode is EgressMode.NONE:
        return Verdict(allowed=True, why="egress is not restricted")
    try:
        name = parse_host(host)
    except Rejected as refusal:
        return Verdict(allowed=False, why=refusal.detail)
    address = read_address(name)
    if address is not None:
        return _judge_literal(grant, address, port)
    found = [pattern for pattern in grant.hosts if _names(pattern, name) and _covers_port(pattern, port)]
    if found:
        return _granted(found)
    needs = (HostPattern(HostKind.EXACT, name, _own_port(port)),)
    return Verdict(allowed=False, why=f"{name}{_shown(port)} is not among the granted hosts", needs=needs)


def judge_address(grant: NetGrant, address: Address | str, port: int | None, *, name: str | None) -> Verdict:
    """Whether one address may be dialled for the host that was named; `name` None: it was the address itself."""
    if grant.mode is EgressMode.NONE:
        return Verdict(allowed=True, why="egress is not restricted")
    real = embedded(ip_address(address) if isinstance(address, str) else address)
    if name is None:
        return _judge_literal(grant, real, port)
    by_name = judge_host(grant, name, port)
    if not by_name.allowed:
        return by_name
    literal = read_address(parse_host(name))
    if literal is not None:
        same = literal == real
        return by_name if same else Verdict(allowed=False, why=f"{real} is not the granted address {literal}")
    kind = classify_address(real)
    if kind is AddressClass.METADATA:
        return Verdict(allowed=False, why=f"{real} is a metadata address, which no name may lead to")
    if kind is AddressClass.PUBLIC:
        return by_name
    for pattern in grant.hosts:
        if _holds(pattern, real) and _covers_port(pattern, port):
            return Verdict(allowed=True, pattern=pattern, why=f"granted by {by_name.pattern} and {pattern}")
    why = f"{name} leads to {real}, which is {kind.value} and not granted as an address or range"
    return Verdict(allowed=False, why=why, needs=(_of_address(real, port),))


def judge_answer(grant: NetGrant, addresses: Sequence[Address | str], port: int | None, *, name: str) -> Verdict:
    """A whole answer of a name server: all of it must be allowed, or none of it is used."""
    if not addresses:
        return Verdict(allowed=False, why=f"{name} has no address")
    verdicts = [judge_address(grant, address, port, name=name) for address in addresses]
    refused = [verdict for verdict in verdicts if not verdict.allowed]
    if not refused:
        return verdicts[0]
    needs = dict.fromkeys(pattern for verdict in refused for pattern in verdict.needs)
    return replace(refused[0], needs=tuple(needs) if all(verdict.needs for verdict in refused) else ())


def _judge_literal(grant: NetGrant, address: Address, port: int | None) -> Verdict:
    only_exact = classify_address(address) is AddressClass.METADATA
    found = [
        pattern
        for pattern in grant.hosts
        if _holds(pattern, address)
        and _covers_port(pattern, port)
        and not (only_exact and ip_network(pattern.value).num_addresses != 1)
    ]
    if found:
        return _granted(found)
    needs = (_of_address(address, port),)
    return Verdict(allowed=False, why=f"{address}{_shown(port)} is not among the granted addresses", needs=needs)


def _granted(found: Sequence[HostPattern]) -> Verdict:
    """By the raw one, where one of them is: it is the wider."""
    pattern = next((one for one in found if one.raw), found[0])
    return Verdict(allowed=True, pattern=pattern, why=f"granted by {pattern}", is_raw=pattern.raw)


def _of_address(address: Address, port: int | None) -> HostPattern:
    return HostPattern(HostKind.NETWORK, str(ip_network(address)), _own_port(port))


def _own_port(port: int | None) -> int | None:
    return None if port in DEFAULT_PORTS else port


def _names(pattern: HostPattern, name: str) -> bool:
    if pattern.kind is HostKind.EXACT:
        return name == pattern.value
    return pattern.kind is HostKind.SUFFIX and name.endswith("." + pattern.value)


def _holds(pattern: HostPattern, address: Address) -> bool:
    return pattern.kind is HostKind.NETWORK and address in ip_network(pattern.value)


def _covers_port(pattern: HostPattern, port: int | None) -> bool:
    if port is None:
        return True
    return port in DEFAULT_PORTS if pattern.port is None else port == pattern.port


def _shown(port: int | None) -> str:
    return "" if port is None else f":{port}"
