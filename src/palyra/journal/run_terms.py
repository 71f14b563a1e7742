"""What a run that was made by name narrows, as entries tell of it: by a digest, in the intent of each of its calls.

Its terms are a row without a signature: whoever takes a narrowing back there, moves the run to another workspace or
reopens it contradicts its calls (journal/audit_calls). They hold a random number, so that nobody guesses a workspace or
a host by the digest; those of older versions have none, and are told by no entry. Nor is a run that no call came for:
making runs costs no budget, and must not fill the journal.
"""

from __future__ import annotations

import orjson

from palyra.canon import sha256_hex

NONCE = "nonce"
_HAS_NONCE = f'"{NONCE}":'.encode()


def terms_sha256(run_id: str, principal: str, workspace: str, created_unix_ms: int, terms: bytes) -> str | None:
    """Of a row as it is stored; None where no entry tells of it."""
    if _HAS_NONCE not in terms:
        return None
    said = orjson.dumps([run_id, principal, workspace, created_unix_ms])
    return sha256_hex(b"palyra run terms\0" + said + b"\0" + terms)
