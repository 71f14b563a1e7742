"""What a token is: how it is spelled, what is kept of it, and when it holds.

A token is `palyra_` + its id + `_` + 32 random bytes in hex. Only the SHA-256 of the whole is kept: with 256 random
bits there is nothing to guess, so a slow hash would only slow the daemon down. The id finds the row, the digest is
compared in constant time.

Rules: an operator's token belongs to a user, never to an agent; every token ends. Not here: rows (tokens/store).
"""

from __future__ import annotations

import hashlib
import hmac
import re

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.model.call import PrincipalKind, is_ulid, parse_principal
from palyra.values import dataclass

DEFAULT_MS = 30 * 24 * 3600 * 1000
LONGEST_MS = 366 * 24 * 3600 * 1000
SHORTEST_MS = 1000
SECRET_BYTES = 32
_SPELLING = re.compile(r"palyra_([0-7][0-9A-HJKMNP-TV-Z]{25})_([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    token_id: str
    principal: str
    operator: bool
    workspace: str
    """The folder its calls are bound to; empty: any."""
    created_unix_ms: int
    expires_unix_ms: int
    revoked_unix_ms: int | None = None

    def holds(self, now_unix_ms: int) -> bool:
        return self.revoked_unix_ms is None and now_unix_ms < self.expires_unix_ms

    def as_json(self) -> dict[str, Json]:
        return {
            "id": self.token_id,
            "principal": self.principal,
            "operator": self.operator,
            "workspace": self.workspace or None,
            "created_at_unix_ms": self.created_unix_ms,
            "expires_at_unix_ms": self.expires_unix_ms,
            "revoked_at_unix_ms": self.revoked_unix_ms,
        }


def new_token(
    *, token_id: str, principal: str, operator: bool, workspace: str, now_unix_ms: int, lifetime_ms: int | None
) -> Token:
    """`Rejected` for an agent that would be an operator, or a time that is none."""
    who = parse_principal(principal)
    if operator and who.kind is not PrincipalKind.USER:
        raise Rejected(
            Reason.CAPABILITY_DENIED, "An agent can never be an operator.", "Name a user: --principal user:NAME"
        )
    lifetime = DEFAULT_MS if lifetime_ms is None else lifetime_ms
    if not SHORTEST_MS <= lifetime <= LONGEST_MS:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "A token is valid for between one second and one year.",
            "Give its lifetime in seconds: --expires S",
        )
    return Token(
        token_id=token_id,
        principal=str(who),
        operator=operator,
        workspace=workspace,
        created_unix_ms=now_unix_ms,
        expires_unix_ms=now_unix_ms + lifetime,
    )


def spell(token_id: str, secret: bytes) -> str:
    if len(secret) != SECRET_BYTES or not is_ulid(token_id):
        raise ValueError("a token is a ULID and 32 random bytes")
    return f"palyra_{token_id}_{secret.hex()}"


def id_of(text: str) -> str | None:
    """Of which token this could be the secret; None for what is spelled otherwise."""
    found = _SPELLING.fullmatch(text)
    return None if found is None else found[1]


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("ascii")).digest()


def is_same(kept: bytes, text: str) -> bool:
    return hmac.compare_digest(kept, digest_of(text))
