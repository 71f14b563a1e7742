"""`[daemon]`: where `palyra serve` listens, and what bounds those who connect.

Not here: who may do what (daemon/routes), the credentials themselves (tokens/).
"""

from __future__ import annotations

from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """`[daemon]`."""

    host: str = "127.0.0.1"
    """The address to listen on. Any but a loopback address needs tls_certificate and tls_key."""
    port: int = 7142
    """0 picks a free port, which is printed."""
    socket: str = ""
    """The Unix socket; empty: HOME/run/palyrad.sock."""
    names: tuple[str, ...] = ()
    """Host names that this daemon answers to besides localhost and its address. Others are refused: another site's name
    could point here (DNS rebinding)."""
    tls_certificate: str = ""
    """A PEM file with the certificate and its chain."""
    tls_key: str = ""
    """A PEM file with its key, which nobody else may read."""
    max_connections: int = 4096
    """Connections at once; one more is answered 503 and closed, with TLS without the answer. Fewer where this process
    may not open enough files (LimitNOFILE)."""
    max_header_bytes: int = 32_768
    """Request line and headers together."""
    max_body_bytes: int = 4_194_304
    """Body of a request, where its route has no bound of its own."""
    header_timeout_ms: int = 10_000
    """From the connection, or the first byte of a request, to the end of its headers."""
    body_timeout_ms: int = 30_000
    """From there to the end of its body."""
    idle_timeout_ms: int = 30_000
    """A connection without a request is closed after this."""
    max_calls: int = 256
    """Calls of all callers that run or wait at once; one more is refused with BUSY and not recorded."""
    max_calls_waiting_per_run: int = 64
    """Calls of one run that wait for their turn."""
    max_batch: int = 64
    """Calls in one request."""
    shutdown_ms: int = 10_000
    """How long calls may continue after SIGTERM; then they are ended and recorded as cancelled."""
    traces: bool = False
    """OpenTelemetry spans of calls, sent where the OTEL_… environment says; needs palyra[otel]."""
    session_ms: int = 43_200_000
    """How long a console login lasts at most, also across restarts."""
    session_idle_ms: int = 7_200_000
    """A login unused for this long ends."""


RANGES = {
    "port": (0, 65535),
    "daemon.max_connections": (16, 1_000_000),
    "max_header_bytes": (1024, 1 << 20),
    "max_body_bytes": (1 << 10, 1 << 30),
    "header_timeout_ms": (100, 600_000),
    "body_timeout_ms": (100, 3_600_000),
    "idle_timeout_ms": (100, 3_600_000),
    "max_calls": (1, 100_000),
    "max_calls_waiting_per_run": (1, 100_000),
    "max_batch": (1, 10_000),
    "shutdown_ms": (0, 3_600_000),
    "session_ms": (60_000, 30 * 24 * 3600 * 1000),
    "session_idle_ms": (60_000, 30 * 24 * 3600 * 1000),
}
