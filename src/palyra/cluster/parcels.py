"""A signed envelope and the bytes whose digest it names, side by side: an order to a node, a node's answer. Pure.

The envelope's canonical JSON, a line feed (canonical JSON holds none), the body exactly as it was digested. So a body
is held against its digest without being read, and one that was read before under the same digest need not be again.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from palyra.canon import Json, canonical, sha256_hex
from palyra.errors import TrustError

_BETWEEN = b"\n"


def pack_parcel(envelope: Mapping[str, Json], body: bytes) -> bytes:
    return canonical(dict(envelope)) + _BETWEEN + body


def open_parcel(parcel: bytes) -> tuple[Json, bytes]:
    """The envelope, nothing of it believed yet, and the body, nothing of it read."""
    envelope, between, body = parcel.partition(_BETWEEN)
    if not between:
        raise TrustError("The parcel has no body.")
    try:
        return orjson.loads(envelope), body
    except orjson.JSONDecodeError as error:
        raise TrustError("The parcel's envelope is not JSON.") from error


def check_body(body: bytes, sha256: str, what: str) -> None:
    if sha256_hex(body) != sha256:
        raise TrustError(f"The {what} is not the one that was signed.")
