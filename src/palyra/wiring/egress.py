"""Joins the egress server to a configuration: the same for the engine's process and for a keeper's.

Where hosts are marked for interception, one authority of this process signs for them, and the bundle that sandboxes get
is the machine's own with that authority behind it. Secrets bound to hosts come from whoever keeps them, by shape.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from palyra.config.egress import parse_resolve
from palyra.config.schema import Config
from palyra.egress.dial import Dialer
from palyra.egress.hosts import parse_pattern
from palyra.egress.rules import DEFAULT_PORTS, judge_host
from palyra.errors import ConfigError, Rejected
from palyra.model.face import Listener, Trust
from palyra.model.net import HostKind, HostPattern, NetGrant
from palyra.model.plan import ProcessPlan

if TYPE_CHECKING:
    from palyra.egress.credentials import Credential
    from palyra.egress.fetch import Credentials, HttpFetcher
    from palyra.egress.server.serving import EgressServer, Interception, Serving
    from palyra.model.fetch import Fetched, FetchOrder

BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Where distributions keep what their programs trust, in one file."""


class Egress:
    """The server for sandboxes with a network, made when the first of them begins: most calls have none, and a command
    line that reads and compiles all of it would pay for nothing."""

    def __init__(self, config: Config, interceptor: Interceptor | None = None) -> None:
        self._config = config.egress
        self._dialer = dialer_of(config)
        self._interceptor = interceptor
        self._server: EgressServer | None = None

    def serve(
        self, plan: ProcessPlan, listeners: Sequence[Listener], credentials: Sequence[Credential] = ()
    ) -> Serving:
        try:
            if self._server is None:
                self._server = self._make()
        except BaseException:
            for one in listeners:
                os.close(one.fd)
            raise
        return self._server.serve(plan, listeners, credentials)

    def _make(self) -> EgressServer:
        from palyra.egress.limits import EgressLimits
        from palyra.egress.server.serving import EgressServer

        given = self._config
        limits = EgressLimits(
            connections=given.max_connections,
            connections_at_once=given.max_connections_at_once,
            total_bytes=given.max_bytes,
            idle_s=given.idle_timeout_s,
            total_s=given.connection_timeout_s,
        )
        interception = self._interceptor.interception if self._interceptor is not None else None
        return EgressServer(self._dialer, limits, interception=interception)


class LateFetcher:
    """The engine's Fetcher; what it needs is imported with the first request."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._made: HttpFetcher | None = None

    async def fetch(self, order: FetchOrder, credentials: Credentials) -> Fetched:
        if self._made is None:
            from palyra.egress.fetch import HttpFetcher

            self._made = HttpFetcher(dialer_of(self._config))
        return await self._made.fetch(order, credentials)


def dialer_of(config: Config) -> Dialer:
    return Dialer(parse_resolve(config.egress.resolve))


def interceptor_of(config: Config, now_unix_ms: Callable[[], int]) -> Interceptor | None:
    """None where no host is marked; nothing is made before the first call that needs it."""
    try:
        hosts = tuple(parse_pattern(text) for text in config.egress.intercept)
    except Rejected as error:
        raise ConfigError(f"intercept in [egress]: {error.detail}", error.hint) from error
    return Interceptor(hosts, now_unix_ms) if hosts else None


class Interceptor:
    """Fits the engine's `Intercepts`."""

    def __init__(self, hosts: Sequence[HostPattern], now_unix_ms: Callable[[], int]) -> None:
        self._hosts = tuple(hosts)
        self._now_unix_ms = now_unix_ms
        self._latest: list[_Own] = []
        """The one that calls begin with, and the one before it, which those that began earlier still trust."""

    def trust_for(self, net: NetGrant) -> Trust | None:
        marked = tuple(pattern for pattern in self._hosts if _may_be_reached(net, pattern))
        if not marked:
            return None
        own = self._own()
        return Trust(hosts=marked, bundle=own.bundle, authority=own.certificate, system_path=own.system_path)

    def interception(self, authority: bytes) -> Interception | None:
        return next((own.interception() for own in self._latest if own.certificate == authority), None)

    def _own(self) -> _Own:
        """Made anew in time: a daemon lives longer than a certificate, and nothing that it served would be trusted."""
        now = self._now_unix_ms()
        if not self._latest or not self._latest[0].is_fresh(now):
            self._latest = [_Own(self._hosts, self._now_unix_ms), *self._latest[:1]]
        return self._latest[0]


class _Own:
    """An authority, and what goes with it; the machine's own trust as it was then, inside and outside."""

    def __init__(self, hosts: Sequence[HostPattern], now_unix_ms: Callable[[], int]) -> None:
        from palyra.egress.server.authority import FRESH_MS, Authority

        self._authority = Authority(hosts, now_unix_ms=now_unix_ms)
        self._interception: Interception | None = None
        self._made_unix_ms = now_unix_ms()
        self._fresh_ms = FRESH_MS
        system, self.system_path = _system_bundle()
        self.certificate = self._authority.pem
        self.bundle = system + self.certificate

    def is_fresh(self, now_unix_ms: int) -> bool:
        """Not with a clock that was set back either: the certificate would be one of the future."""
        return self._made_unix_ms <= now_unix_ms < self._made_unix_ms + self._fresh_ms

    def interception(self) -> Interception:
        if self._interception is None:
            from palyra.egress.server.authority import upstream_context
            from palyra.egress.server.serving import Interception

            self._interception = Interception(certificates=self._authority, upstream=upstream_context())
        return self._interception


def _may_be_reached(net: NetGrant, pattern: HostPattern) -> bool:
    if pattern.kind is not HostKind.EXACT:
        return True  # some host of it may be; which one is seen when it is named
    ports = DEFAULT_PORTS if pattern.port is None else (pattern.port,)
    return any(judge_host(net, pattern.value, port).allowed for port in ports)


def _system_bundle() -> tuple[bytes, str]:
    for path in BUNDLES:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read().rstrip(b"\n") + b"\n", os.path.realpath(path)
    return b"", ""


class BoundSecret(Protocol):
    """A secret as a header of requests to one host."""

    @property
    def host(self) -> str: ...
    @property
    def header(self) -> str: ...
    @property
    def value(self) -> bytes: ...


class BoundSecrets(Protocol):
    def bound(self, *, principal: str, tool: str) -> Sequence[BoundSecret]: ...


class HostSecrets:
    """The engine's `HostCredentials`, over whatever keeps secrets."""

    def __init__(self, secrets: BoundSecrets) -> None:
        self._secrets = secrets

    def for_call(self, *, principal: str, tool: str) -> Sequence[Credential]:
        from palyra.egress.credentials import Credential

        return tuple(
            Credential(pattern=parse_pattern(one.host), header=one.header, value=one.value.decode("ascii"))
            for one in self._secrets.bound(principal=principal, tool=tool)
        )
