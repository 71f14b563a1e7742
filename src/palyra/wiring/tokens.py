"""Joins the tokens' rows to a home: the same store for the command line and the daemon."""

from __future__ import annotations

from palyra.tokens.store import TokenStore
from palyra.wiring.embedded import Installation


def make_tokens(installation: Installation) -> TokenStore:
    ports = installation.ports
    return TokenStore(
        installation.writer,
        new_id=ports.ids.ulid,
        random_bytes=ports.ids.random_bytes,
        now_unix_ms=ports.clock.now_unix_ms,
    )
