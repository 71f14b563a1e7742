"""Signature version 4, as S3-compatible stores want it: a request's method, place, headers and the digest of its body,
signed with a key of the day. Pure: the clock's value is given.

Rules: the path is encoded once and signed as it is sent, the query sorted, every header that is signed is sent. Not
here: sending (cluster/s3).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "s3"
_UNRESERVED = "-._~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    host: str
    """As the Host header has it: with the port, unless it is the scheme's own."""
    path: str
    """Not encoded."""
    query: Mapping[str, str] = field(default_factory=dict)
    payload_sha256: str = hashlib.sha256(b"").hexdigest()

    @property
    def target(self) -> str:
        """What stands in the request line: exactly what is signed."""
        return encoded_path(self.path) + (f"?{encoded_query(self.query)}" if self.query else "")


def signed(request: Request, credentials: Credentials, *, region: str, now_unix_ms: int) -> dict[str, str]:
    """The headers to send, Authorization among them."""
    moment = datetime.fromtimestamp(now_unix_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": request.host, "x-amz-content-sha256": request.payload_sha256, "x-amz-date": moment}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    lines = [
        request.method,
        encoded_path(request.path),
        encoded_query(request.query),
        *(f"{name}:{headers[name].strip()}" for name in sorted(headers)),
        "",
        names,
        request.payload_sha256,
    ]
    scope = f"{moment[:8]}/{region}/{SERVICE}/aws4_request"
    told = "\n".join((ALGORITHM, moment, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()))
    signature = hmac.digest(_key_of_day(credentials.secret_key, moment[:8], region), told.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def encoded_path(path: str) -> str:
    return quote(path, safe="/" + _UNRESERVED)


def encoded_query(query: Mapping[str, str]) -> str:
    pairs = sorted((quote(name, safe=_UNRESERVED), quote(value, safe=_UNRESERVED)) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _key_of_day(secret: str, day: str, region: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in (day, region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
