"""Touches: HOME/proof.json. The newest proof of the sandbox, signed by the installation; read at each start.

A proof that is not signed by this installation, or was made on another host or profile, counts for nothing: no id.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from palyra.errors import TrustError, Unenforceable
from palyra.model.host import HostFacts
from palyra.sandbox.proof import fingerprint_of, parse_proof
from palyra.signing import PublicKey, dsse_verify

PAYLOAD_TYPE = "application/vnd.palyra.proof+json"
_NAME = "proof.json"
_MAX_BYTES = 1 << 20


def write_proof(root: Path, envelope: dict[str, object]) -> None:
    from palyra.state.whole import write_whole

    write_whole(root / _NAME, orjson.dumps(envelope))


def current_proof_id(root: Path, key: PublicKey, host: HostFacts, *, version: str) -> str | None:
    """The id attestations refer to, while the proof is ours and fits this host and profile."""
    try:
        with (root / _NAME).open("rb") as stream:
            data = stream.read(_MAX_BYTES)
    except OSError:
        return None
    try:
        kind, payload = dsse_verify(orjson.loads(data), key)
        proof = parse_proof(orjson.loads(payload))
        fits = proof.fingerprint == fingerprint_of(host, version=version)
    except (TrustError, ValueError, Unenforceable):
        return None
    return proof.proof_id if kind == PAYLOAD_TYPE and proof.holds and fits else None
