"""Words about palyra.http.fetch: what is to be fetched, and what came back.

The transport half runs outside every sandbox and touches nothing but framing: bytes of the answer are handed, as they
came, to a program of ours in tier C that decompresses and reads them. The plan (model/plan) names both.

Not here: connecting (egress/fetch), reading URLs (egress/fetch_url), the parsing program (inside/page).
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from palyra.canon import Json, sha256_hex
from palyra.errors import PalyraError
from palyra.model.net import NetGrant
from palyra.model.outcome import Connection
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class FetchUrl:
    """A URL that was read: every part in the one spelling that is judged, dialled and sent."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str
    """With its query, as it stands in a request; never empty."""

    @property
    def encrypted(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.encrypted else 80) else f"{name}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    method: Literal["GET", "HEAD", "POST"]
    url: FetchUrl
    headers: tuple[tuple[str, str], ...]
    body: bytes
    net: NetGrant
    max_bytes: int
    """Of the body, as it comes over the wire."""
    timeout_ms: int
    max_redirects: int

    def as_json(self) -> dict[str, Json]:
        return {
            "method": self.method,
            "url": str(self.url),
            "headers": [list(pair) for pair in self.headers],
            "body_sha256": sha256_hex(self.body),
            "net": self.net.as_json(),
            "max_bytes": self.max_bytes,
            "timeout_ms": self.timeout_ms,
            "max_redirects": self.max_redirects,
        }


@dataclass(frozen=True, slots=True)
class Hop:
    url: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    status: int
    url: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case; all of them."""
    body: bytes = field(repr=False)
    truncated: bool = False
    redirects: tuple[Hop, ...] = ()
    connections: tuple[Connection, ...] = ()


class FetchFailed(PalyraError):
    """Nothing usable came back. `code` is stable; the sentence names no value of a header."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        redirects: tuple[Hop, ...] = (),
        connections: tuple[Connection, ...] = (),
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.redirects = redirects
        self.connections = connections
