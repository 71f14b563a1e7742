"""How much of the network one call may use, beside the hosts it may reach.

Rules: each is a number with a ceiling; reaching one ends connections, never the call, and leaves a record that says
which. A slow client is ended by the timers of its conversation, a silent one by `idle_s`, a busy one by `total_s`.

Not here: counting (egress/server), the call's own wall time (model/limits).
"""

from __future__ import annotations

from dataclasses import fields

from palyra.errors import ConfigError
from palyra.values import dataclass

CAPS: dict[str, tuple[int, int]] = {
    "connections": (1, 1_000_000),
    "connections_at_once": (1, 10_000),
    "total_bytes": (0, 1 << 50),
    "idle_s": (1, 86_400),
    "total_s": (1, 604_800),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    connections: int = 10_000
    """In one call, refused ones included."""
    connections_at_once: int = 256
    total_bytes: int = 16 << 30
    """Both ways together, of all connections of a call."""
    idle_s: int = 300
    """A connection on which nothing moved for this long is closed."""
    total_s: int = 86_400
    """The longest time one connection may live."""

    def __post_init__(self) -> None:
        for one in fields(self):
            low, high = CAPS[one.name]
            if not low <= getattr(self, one.name) <= high:
                raise ConfigError(
                    f"{one.name} = {getattr(self, one.name)} is outside {low} to {high}.",
                    f"Choose {one.name} within that range.",
                )
