"""Joins the egress server to a configuration: the same for the engine's process and for a keeper's."""

from __future__ import annotations

from palyra.config.egress import parse_resolve
from palyra.config.schema import Config
from palyra.egress.dial import Dialer
from palyra.egress.server.serving import Bounds, EgressServer


def egress_of(config: Config) -> EgressServer:
    bounds = config.egress
    limits = Bounds(
        connections=bounds.max_connections,
        connections_at_once=bounds.max_connections_at_once,
        total_bytes=bounds.max_bytes,
        idle_s=bounds.idle_timeout_ms / 1000,
    )
    return EgressServer(Dialer(parse_resolve(bounds.resolve)), limits)
