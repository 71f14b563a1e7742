"""A grant, narrowed to the hosts a call asks for itself (`requested_egress_hosts`).

Asking never adds: a host that is not granted is refused before anything runs (egress/preflight). Names that are granted
and not asked for are left out. Address ranges stay, because an asked name may lead into one.

Not here: reading patterns (egress/hosts), judging hosts (egress/rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palyra.egress.hosts import parse_host, read_address, split_port
from palyra.egress.rules import judge_host
from palyra.model.net import EgressMode, HostKind, HostPattern, NetGrant


def narrow(grant: NetGrant, asked: Sequence[str]) -> NetGrant:
    """The same grant where nothing in particular is asked for, or nothing is restricted."""
    if not asked or grant.mode is EgressMode.NONE:
        return grant
    kept = {pattern for pattern in grant.hosts if pattern.kind is HostKind.NETWORK}
    for text in asked:
        host, port = split_port(text.strip())
        name = parse_host(host)
        if read_address(name) is None:
            kept |= {
                HostPattern(HostKind.EXACT, name, pattern.port if port is None else port, raw=pattern.raw)
                for pattern in grant.hosts
                if judge_host(NetGrant(grant.mode, (pattern,)), name, port).allowed
            }
    return NetGrant(grant.mode, in_order(kept))


def in_order(patterns: Iterable[HostPattern]) -> tuple[HostPattern, ...]:
    """One order for one set, so that equal grants are equal plans. A pattern without a port comes first."""
    return tuple(sorted(set(patterns), key=lambda one: (one.kind.value, one.value, one.port or 0, one.raw)))
