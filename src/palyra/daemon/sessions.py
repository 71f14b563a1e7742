"""Logins of the console: one-time links, sessions, CSRF tokens, and how often somebody may be wrong.

Rules: a session's id is made here, at login, and never taken from a request, so none can be planted (fixation); only
its digest is kept. A link works once and for a minute. All of it lives in memory: a restart logs everybody out.

Not here: cookies' attributes and pages (the console's routes), who is an operator (daemon/auth).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field

from palyra.values import dataclass

COOKIE = "palyra_session"
CSRF_HEADER = "x-palyra-csrf"
CSRF_FIELD = "csrf"
"""The field of a form that carries it, for pages without a script."""
LINK_MS = 60_000
MAX_SESSIONS = 256
MAX_LINKS = 32
MAX_FAILURES = 10
FAILURE_WINDOW_MS = 60_000
MAX_PLACES = 1024


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
    session_ms: int
    _sessions: OrderedDict[bytes, Session] = field(default_factory=OrderedDict)
    _links: OrderedDict[bytes, tuple[str, str, int]] = field(default_factory=OrderedDict)

    def make_link(self, principal: str, credential_id: str = "") -> str:
        """A code for `/console/login?code=…`; it works once."""
        code = self.random_bytes(32).hex()
        self._links[_digest(code)] = (principal, credential_id, self.now_unix_ms() + LINK_MS)
        while len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return code

    def use_link(self, code: str) -> str | None:
        """Whose link it was; None for one that is used, old or nobody's."""
        found = self.redeem(code)
        return None if found is None else found[0]

    def redeem(self, code: str) -> tuple[str, str] | None:
        """(whose link it was, the token it was made with)."""
        principal, credential_id, until = self._links.pop(_digest(code), ("", "", 0))
        return (principal, credential_id) if until > self.now_unix_ms() else None

    def open(self, principal: str, credential_id: str = "") -> tuple[str, Session]:
        """(the cookie's value, the session)."""
        secret, now = self.random_bytes(32).hex(), self.now_unix_ms()
        session = Session(
            principal=principal,
            csrf=self.random_bytes(32).hex(),
            created_unix_ms=now,
            expires_unix_ms=now + self.session_ms,
            credential_id=credential_id,
        )
        self._sessions[_digest(secret)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return secret, session

    def find(self, secret: str) -> Session | None:
        if not secret:
            return None
        key = _digest(secret)
        session = self._sessions.get(key)
        if session is not None and session.expires_unix_ms <= self.now_unix_ms():
            del self._sessions[key]
            return None
        return session

    def end(self, secret: str) -> None:
        self._sessions.pop(_digest(secret), None)


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
