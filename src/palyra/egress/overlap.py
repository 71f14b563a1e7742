"""What two lists of hosts both cover, as a list again: how a run's own hosts narrow the configured ones.

Rules: a host is covered only where both lists cover it, by name, by address range and by port; of a wider and a
narrower pattern the narrower is left. `raw` is the first list's to give, the configuration's.

Not here: reading patterns (egress/hosts), judging hosts (egress/rules).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network

from palyra.egress.rules import DEFAULT_PORTS
from palyra.model.net import HostKind, HostPattern


def overlap(one: Iterable[HostPattern], other: Iterable[HostPattern]) -> tuple[HostPattern, ...]:
    others = tuple(other)
    found = (_both(mine, theirs) for mine in one for theirs in others)
    return tuple(pattern for pattern in found if pattern is not None)


def _both(one: HostPattern, other: HostPattern) -> HostPattern | None:
    narrower = other if _covers(one, other) else one if _covers(other, one) else None
    ports = _ports(one) & _ports(other)
    if narrower is None or not ports:
        return None
    port = None if ports == {*DEFAULT_PORTS} else next(iter(ports))
    return HostPattern(narrower.kind, narrower.value, port, raw=one.raw)


def _ports(pattern: HostPattern) -> set[int]:
    return {*DEFAULT_PORTS} if pattern.port is None else {pattern.port}


def _covers(wide: HostPattern, narrow: HostPattern) -> bool:
    if (wide.kind, wide.value) == (narrow.kind, narrow.value):
        return True
    if HostKind.NETWORK in (wide.kind, narrow.kind):
        return wide.kind is narrow.kind and _within(ip_network(narrow.value), ip_network(wide.value))
    return wide.kind is HostKind.SUFFIX and narrow.value.endswith(f".{wide.value}")


def _within(narrow: IPv4Network | IPv6Network, wide: IPv4Network | IPv6Network) -> bool:
    if isinstance(narrow, IPv4Network):
        return isinstance(wide, IPv4Network) and narrow.subnet_of(wide)
    return isinstance(wide, IPv6Network) and narrow.subnet_of(wide)
