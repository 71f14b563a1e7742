"""Joins the egress server to a configuration: the same for the engine's process and for a keeper's."""

from __future__ import annotations

from palyra.config.egress import parse_resolve
from palyra.config.schema import Config
from palyra.egress.dial import Dialer
from palyra.egress.limits import EgressLimits
from palyra.egress.server.serving import EgressServer


def egress_of(config: Config) -> EgressServer:
    given = config.egress
    limits = EgressLimits(
        connections=given.max_connections,
        connections_at_once=given.max_connections_at_once,
        total_bytes=given.max_bytes,
        idle_s=given.idle_timeout_s,
        total_s=given.connection_timeout_s,
    )
    return EgressServer(dialer_of(config), limits)


def dialer_of(config: Config) -> Dialer:
    return Dialer(parse_resolve(config.egress.resolve))
