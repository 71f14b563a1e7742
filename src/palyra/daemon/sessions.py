"""Logins of the console: one-time links, sessions, CSRF tokens, and how often somebody may be wrong.

Rules: a session's id is made here, at login, and never taken from a request, so none can be planted (fixation). Only
its digest is kept, with the home's other rows: a restart logs nobody out, and who reads the rows can log in as nobody.
The CSRF token is worked out of the id, so it is kept nowhere. A session ends at its time, when nobody used it for a
while, and with the token that opened it. A link works once and for a minute, and lives in memory alone.

Not here: cookies and pages (the console), who is an operator (daemon/auth), the rows (wiring/sessions).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from palyra.values import dataclass
from palyra.wiring.sessions import KeptSession

COOKIE = "palyra_session"
CSRF_HEADER = "x-palyra-csrf"
CSRF_FIELD = "csrf"
"""The field of a form that carries it, for pages without a script."""
LINK_MS = 60_000
MAX_LINKS = 32
MAX_FAILURES = 10
FAILURE_WINDOW_MS = 60_000
MAX_PLACES = 1024


class KeepsSessions(Protocol):
    def find(self, digest: bytes) -> KeptSession | None: ...
    async def add(self, session: KeptSession) -> None: ...
    async def drop(self, digest: bytes, *, at_unix_ms: int) -> None: ...
    async def used(self, at_unix_ms: Mapping[bytes, int]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    principal: str
    csrf: str
    created_unix_ms: int
    expires_unix_ms: int
    credential_id: str = ""
    """The token it was opened with: it ends with that token. Empty for the socket's owner."""


@dataclass(slots=True, kw_only=True)
class Sessions:
    now_unix_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    kept: KeepsSessions
    session_ms: int
    idle_ms: int
    _links: OrderedDict[bytes, tuple[str, str, int]] = field(default_factory=OrderedDict)
    _used: dict[bytes, int] = field(default_factory=dict)
    """What `note_used` has to write: not every request is worth a transaction."""

    def make_link(self, principal: str, credential_id: str = "") -> str:
        """A code for `/console/login?code=…`; it works once."""
        code = self.random_bytes(32).hex()
        self._links[_digest(code)] = (principal, credential_id, self.now_unix_ms() + LINK_MS)
        while len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return code

    def redeem(self, code: str) -> tuple[str, str] | None:
        """(whose link it was, the token it was made with); None for one that is used, old or nobody's."""
        principal, credential_id, until = self._links.pop(_digest(code), ("", "", 0))
        return (principal, credential_id) if until > self.now_unix_ms() else None

    async def open(self, principal: str, credential_id: str = "") -> tuple[str, Session]:
        """(the cookie's value, the session)."""
        secret, now = self.random_bytes(32).hex(), self.now_unix_ms()
        kept = KeptSession(
            digest=_digest(secret),
            principal=principal,
            credential_id=credential_id,
            created_unix_ms=now,
            expires_unix_ms=now + self.session_ms,
            used_unix_ms=now,
        )
        await self.kept.add(kept)
        return secret, _shown(kept, secret)

    def find(self, secret: str) -> Session | None:
        """One that holds now. Looking at it is not using it."""
        kept = self.kept.find(_digest(secret)) if secret else None
        if kept is None:
            return None
        now, used = self.now_unix_ms(), max(kept.used_unix_ms, self._used.get(kept.digest, 0))
        return _shown(kept, secret) if now < kept.expires_unix_ms and now - used < self.idle_ms else None

    def use(self, secret: str) -> None:
        """Of a session that `find` found: somebody asked with it."""
        self._used[_digest(secret)] = self.now_unix_ms()

    async def note_used(self) -> None:
        used, self._used = self._used, {}
        if used:
            await self.kept.used(used)

    async def end(self, secret: str) -> None:
        self._used.pop(_digest(secret), None)
        if secret:
            await self.kept.drop(_digest(secret), at_unix_ms=self.now_unix_ms())


def _shown(kept: KeptSession, secret: str) -> Session:
    return Session(
        principal=kept.principal,
        csrf=hashlib.sha256(b"csrf " + secret.encode("utf-8", "surrogatepass")).hexdigest(),
        created_unix_ms=kept.created_unix_ms,
        expires_unix_ms=kept.expires_unix_ms,
        credential_id=kept.credential_id,
    )


@dataclass(slots=True, kw_only=True)
class Failures:
    """Wrong credentials, by where they came from: past `MAX_FAILURES` in a minute nobody is tried from there."""

    now_unix_ms: Callable[[], int]
    _places: OrderedDict[str, tuple[int, int]] = field(default_factory=OrderedDict)

    def is_barred(self, place: str) -> bool:
        count, since = self._places.get(place, (0, 0))
        return count >= MAX_FAILURES and self.now_unix_ms() - since < FAILURE_WINDOW_MS

    def note(self, place: str) -> None:
        now = self.now_unix_ms()
        count, since = self._places.pop(place, (0, now))
        self._places[place] = (1, now) if now - since >= FAILURE_WINDOW_MS else (count + 1, since)
        while len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
