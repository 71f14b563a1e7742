"""Who asks: a bearer token, the owner at the other end of the Unix socket, or a session of the console.

Order: 1 Host and Origin (a page elsewhere must not reach us through a browser, by its own name or by a form) · 2 the
credential · 3 whether it is enough for the route · 4 for a session that changes something, its CSRF token. All of it
before a byte of the body is read. A bad token is refused even where a session or the socket would do: who sends one
means it.

Not here: the tokens themselves (tokens/), sessions (daemon/sessions), what a principal may do (policies).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from palyra.daemon.routes import Refused, Who
from palyra.daemon.sessions import COOKIE, CSRF_HEADER, Session, Sessions
from palyra.tokens.rules import Token
from palyra.values import dataclass

CALLER = "palyra.caller"
"""Where a request's scope says who was let in."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="palyra"'}


class Proof(StrEnum):
    """How a caller showed who it is."""

    NONE = "none"
    TOKEN = "token"
    PEER = "peer"
    """The Unix socket's other end is the home's owner."""
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    principal: str
    operator: bool
    proof: Proof
    workspace: str = ""
    """A folder that the credential is bound to; empty: any."""
    credential_id: str = ""
    session: Session | None = None

    @property
    def shown(self) -> str:
        """For the log: whose credential, never the credential."""
        return f"{self.principal} by {self.proof}"


NOBODY = Caller(principal="", operator=False, proof=Proof.NONE)
Cookies = Callable[[], Mapping[str, str]]
"""Read out of their header by whoever needs them: a token's bearer sends none."""


class KnowsTokens(Protocol):
    def find(self, secret: str) -> Token | None:
        """A token that holds now; None for anything else."""

    def by_id(self, token_id: str) -> Token | None:
        """Whether it holds or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The door's keeper: what it needs to tell who asks."""

    tokens: KnowsTokens
    sessions: Sessions
    owner: str
    """The principal of the home's owner."""
    owner_uid: int
    names: frozenset[str]
    """Host names, in lower case, that requests may carry."""

    def check_place(self, headers: Mapping[str, str], *, peer_uid: int | None) -> None:
        """1: over the Unix socket no browser comes; over TCP the name must be ours, and a page's origin as well."""
        host = headers.get("host", "")
        if peer_uid is None and host_name(host) not in self.names:
            raise Refused(
                403,
                "HOST_DENIED",
                "This daemon does not answer to that host name.",
                "Use 127.0.0.1 or localhost, or name it in daemon.names.",
            )
        origin = headers.get("origin")
        if origin is not None and not _same_origin(origin, host):
            raise Refused(
                403, "ORIGIN_DENIED", "The request comes from a page of another site.", "Open the console itself."
            )

    def identify(self, headers: Mapping[str, str], jar: Cookies, *, peer_uid: int | None) -> Caller:
        """2: a token first, then the socket's peer, then a session; NOBODY without any of them."""
        sent = headers.get("authorization")
        if sent is not None:
            return self._by_token(sent)
        if peer_uid is not None and peer_uid == self.owner_uid:
            return Caller(principal=self.owner, operator=True, proof=Proof.PEER)
        cookies = jar()
        session = self.session_of(cookies)
        if session is not None:
            self.sessions.use(cookies[COOKIE])
            return Caller(principal=session.principal, operator=True, proof=Proof.SESSION, session=session)
        return NOBODY

    def session_of(self, cookies: Mapping[str, str]) -> Session | None:
        """One that still holds: it ends with the token that opened it."""
        session = self.sessions.find(cookies.get(COOKIE, ""))
        if session is None or not session.credential_id:
            return session
        token = self.tokens.by_id(session.credential_id)
        return session if token is not None and token.holds(self.sessions.now_unix_ms()) else None

    def _by_token(self, sent: str) -> Caller:
        scheme, _, secret = sent.partition(" ")
        token = self.tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise unauthenticated("The token is wrong, has expired, or was revoked.")
        return Caller(
            principal=token.principal,
            operator=token.operator,
            proof=Proof.TOKEN,
            workspace=token.workspace,
            credential_id=token.token_id,
        )


def check_access(caller: Caller, who: Who) -> None:
    """3."""
    if who is Who.ANYBODY:
        return
    if caller.proof is Proof.NONE:
        raise unauthenticated("This needs a credential.")
    if who is Who.OPERATOR and not caller.operator:
        raise Refused(403, "FORBIDDEN", "This is for operators.", "An agent's token can never do it.")


def check_csrf(session: Session, given: str) -> None:
    """4: a browser sends the cookie by itself, a page elsewhere cannot know this."""
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), session.csrf.encode()):
        raise Refused(
            403, "CSRF", "The session's CSRF token is missing or wrong.", f"Send it in {CSRF_HEADER}; reload the page."
        )


def unauthenticated(message: str) -> Refused:
    hint = "Send Authorization: Bearer TOKEN; palyra token create makes one."
    return Refused(401, "UNAUTHENTICATED", message, hint, headers=CHALLENGE)


@lru_cache(maxsize=64)
def host_name(host: str) -> str:
    """`Host` without its port, in lower case; empty for what is none."""
    if not host or any(letter in host for letter in "@/\\?# "):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() and bool(host)
