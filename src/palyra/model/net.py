"""Words about the network: egress modes, host patterns and what a call is granted.

A pattern is written `host`, `host:port`, `.suffix`, `*.suffix`, an IP address or a CIDR. Reading and matching
them is egress/hosts and egress/rules; a value here has been read already.
"""

from __future__ import annotations

from enum import StrEnum

from palyra.values import dataclass

RAW = "raw"
"""Behind a pattern: all bytes pass there, whatever protocol they are of. `db.example.com:9042 raw`."""


class EgressMode(StrEnum):
    NONE = "none"
    """No restriction."""
    PREFLIGHT = "preflight"
    """Hosts named in the arguments are checked before the start; nothing is enforced by the kernel."""
    STRICT = "strict"
    """Kernel-enforced: only the granted hosts; an empty list means no network at all."""


class HostKind(StrEnum):
    EXACT = "exact"
    SUFFIX = "suffix"
    NETWORK = "network"
    """An address or CIDR, only ever when written as such."""


@dataclass(frozen=True, slots=True, order=True)
class HostPattern:
    kind: HostKind
    value: str
    """Lower-case, IDNA-encoded, no trailing dot; a suffix without its leading dot; a network in CIDR form."""
    port: int | None = None
    """None means the default ports, 80 and 443."""
    raw: bool = False
    """All bytes pass. Only of one host or address, with a port, and only from the operator."""

    def __str__(self) -> str:
        return f"{self._authority()} {RAW}" if self.raw else self._authority()

    def _authority(self) -> str:
        name = f"*.{self.value}" if self.kind is HostKind.SUFFIX else self.value
        if self.kind is HostKind.NETWORK:  # one address reads as what it is
            name = name.removesuffix("/128" if ":" in name else "/32")
        if self.port is None:
            return name
        return f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class NamedHost:
    """A host that a call's arguments name, as egress/preflight read it."""

    host: str
    port: int | None
    argument: str
    """Which argument named it, for the refusal's sentence."""


@dataclass(frozen=True, slots=True)
class NetGrant:
    mode: EgressMode
    hosts: tuple[HostPattern, ...] = ()

    def as_json(self) -> dict[str, object]:
        return {"mode": self.mode.value, "allowed_hosts": [str(h) for h in self.hosts]}


NO_NETWORK = NetGrant(EgressMode.STRICT)
