"""Which addresses and ports a sandbox listens on inside for its grant, before anything runs in it.

Rules: the program's own loopback stays its own. A port below 1024 no program without capabilities can take, so one
listener on any address serves it, and what knocks at 127.0.0.1:80 is refused and recorded. A higher port gets a
listener on exactly the addresses that were granted: on each name's own synthetic address, on a granted address itself,
on a handful of spare addresses for names below a suffix. Only a wide range of addresses with a high port takes that
port on every address, for nothing less can stand for it.

Not here: opening them (inside/listeners), who may be reached through them (egress/rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network

from palyra.egress.rules import DEFAULT_PORTS
from palyra.errors import Unenforceable
from palyra.model.face import ANY_V4, ANY_V6, DNS_ADDRESS, DNS_PORT, PROXY_PORT, SYNTHETIC, NetFace
from palyra.model.host import Guarantee
from palyra.model.net import EgressMode, HostKind, HostPattern, NetGrant

FIRST_UNPRIVILEGED = 1024
SPARE = 64
"""How many different names below granted suffixes one call can reach by their own address; the proxy has no bound."""
MAX_LISTENERS = 512
_FIRST = IPv4Address("198.18.0.16")


def face_of(grant: NetGrant) -> NetFace | None:
    """None where nothing is granted: then nothing listens. Raises Unenforceable where it would take too many."""
    if grant.mode is not EgressMode.STRICT or not grant.hosts:
        return None
    exact = sorted({pattern.value for pattern in grant.hosts if pattern.kind is HostKind.EXACT})
    names = {name: str(_FIRST + at) for at, name in enumerate(exact)}
    suffixes = any(pattern.kind is HostKind.SUFFIX for pattern in grant.hosts)
    spare = tuple(str(_FIRST + len(names) + at) for at in range(SPARE if suffixes else 0))
    tcp = sorted({pair for pattern in grant.hosts for pair in _listeners(pattern, names, spare)})
    networks = [ip_network(pattern.value) for pattern in grant.hosts if pattern.kind is HostKind.NETWORK]
    local = (*([SYNTHETIC] if names or spare else []), *sorted({str(n) for n in networks if not n.is_loopback}))
    _check(tcp)
    return NetFace(names=tuple(sorted(names.items())), spare=spare, local=local, tcp=_without_covered(tcp))


def _listeners(pattern: HostPattern, names: dict[str, str], spare: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for port in DEFAULT_PORTS if pattern.port is None else (pattern.port,):
        match pattern.kind:
            case HostKind.NETWORK:
                yield _at_network(ip_network(pattern.value)), port
            case _ if port < FIRST_UNPRIVILEGED and port not in (DNS_PORT, PROXY_PORT):
                yield ANY_V4, port
            case HostKind.EXACT:
                yield names[pattern.value], port
            case HostKind.SUFFIX:
                yield from ((address, port) for address in spare)


def _at_network(network: IPv4Network | IPv6Network) -> str:
    if network.num_addresses == 1:
        return str(network.network_address)
    return ANY_V4 if network.version == 4 else ANY_V6


def _without_covered(pairs: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """A listener on any address serves the single ones of its port, which could not be opened beside it."""
    given = set(pairs)
    return tuple(
        (address, port)
        for address, port in pairs
        if address in (ANY_V4, ANY_V6) or (ANY_V6 if ":" in address else ANY_V4, port) not in given
    )


def _check(pairs: list[tuple[str, int]]) -> None:
    if len(pairs) > MAX_LISTENERS:
        raise Unenforceable(
            (Guarantee.HOST_ALLOWLIST.value,),
            f"The granted hosts need {len(pairs)} listeners inside the sandbox; at most {MAX_LISTENERS} are possible.",
            "Grant fewer hosts and ports in allowed_egress_hosts or --allow-host.",
        )
    ours = [pair for pair in pairs if pair[1] in (DNS_PORT, PROXY_PORT) and pair[0] in (DNS_ADDRESS, ANY_V4)]
    if ours:
        raise Unenforceable(
            (Guarantee.HOST_ALLOWLIST.value,),
            f"Port {ours[0][1]} of {ours[0][0]} belongs to Palyra's own listener inside the sandbox.",
            "Leave that port out of allowed_egress_hosts and --allow-host.",
        )
