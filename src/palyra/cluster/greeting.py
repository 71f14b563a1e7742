"""Who connects to a node: a daemon signs the number that it was told, with the node's name and start. Pure.

So a greeting is good for one connection to one start of one node, and says nothing to anybody who listens in.
Not here: when it is said, and how long a stranger may take (cluster/line).
"""

from __future__ import annotations

from typing import Any

import orjson

from palyra.canon import canonical_strict
from palyra.errors import TrustError
from palyra.signing import PublicKey, SigningKey, dsse_sign, dsse_verify

GREETING_TYPE = "application/vnd.palyra.greeting+json"


def sign_greeting(key: SigningKey, node_id: str, node_start: str, number: str) -> bytes:
    said = {"node_id": node_id, "node_start": node_start, "number": number}
    return canonical_strict(dsse_sign(key, GREETING_TYPE, canonical_strict(said)))


def check_greeting(body: bytes, key: PublicKey, node_id: str, node_start: str, number: str) -> None:
    """`TrustError` for one that is not of this connection: signed for another number, node or start, or by another."""
    try:
        envelope: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise TrustError("The greeting is not JSON.") from error
    kind, payload = dsse_verify(envelope, key)
    said = canonical_strict({"node_id": node_id, "node_start": node_start, "number": number})
    if kind != GREETING_TYPE or payload != said:
        raise TrustError("The greeting is for somebody else.")
