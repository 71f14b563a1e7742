"""A stream is worth no more than the credential that opened it: whoever lost that is told why, and the line is cut.

Every stream of server-sent events goes through here, the routes' and those of mounted applications: no handler has to
think of it. A credential is looked at again every second; a token that was revoked or has expired, a session that was
logged out, has expired or lost its token, end the stream with one last event `closed`. It bears no id, so a listener
that comes back with another credential goes on where it was. What runs behind the stream sees its listener gone.

Not here: what holds (tokens/rules, daemon/sessions), requests that are no streams: they are checked once, at the door.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palyra.daemon.auth import CALLER, Caller, Proof
from palyra.daemon.sse import MEDIA_TYPE
from palyra.daemon.state import State
from palyra.tokens.rules import Token

log = logging.getLogger("palyra.daemon")

LOOK_S = 1.0
LAST_WORD_S = 2.0
WORDS = {
    "token_revoked": "The token was revoked.",
    "token_expired": "The token has expired.",
    "session_ended": "The session has ended.",
    "not_known": "It cannot be determined whether the credential is still valid.",
}
Lapse = Callable[[], str | None]
"""Why the credential no longer holds; None while it does."""


def lapse_of(state: State, caller: Caller, cookies: Mapping[str, str]) -> str | None:
    if caller.proof is Proof.TOKEN:
        return _of_token(state.tokens.by_id(caller.credential_id), state.clock.now_unix_ms())
    if caller.proof is not Proof.SESSION or state.guard.session_of(cookies) is not None:
        return None
    opened_with = caller.session.credential_id if caller.session is not None else ""
    if not opened_with:
        return "session_ended"
    return _of_token(state.tokens.by_id(opened_with), state.clock.now_unix_ms()) or "session_ended"


def _of_token(token: Token | None, now_unix_ms: int) -> str | None:
    if token is None or token.revoked_unix_ms is not None:
        return "token_revoked"
    return None if token.holds(now_unix_ms) else "token_expired"


def closing_event(reason: str) -> bytes:
    return b"event: closed\ndata: %s\n\n" % orjson.dumps({"reason": reason, "message": WORDS[reason]})


class Held:
    """An application whose streams end with the credential that its request was let in with."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        def lapse() -> str | None:
            caller: Caller | None = scope.get(CALLER)
            return None if caller is None else lapse_of(self._state, caller, Request(scope).cookies)

        await while_held(self._app, scope, receive, send, lapse)


async def while_held(app: ASGIApp, scope: Scope, receive: Receive, send: Send, lapse: Lapse) -> None:
    """Only a stream is watched, from its first byte: other requests go through without a task of their own."""
    answering = asyncio.current_task()
    assert answering is not None
    line = _Line(send, lapse, answering)
    try:
        await app(scope, receive, line.send)
    except asyncio.CancelledError:
        if not line.is_cut or answering.uncancel() > 0:  # somebody else wanted this request to end as well
            raise
    finally:
        line.stop_watching()


class _Line:
    """What an application sends; a stream of events is cut when its credential no longer holds."""

    def __init__(self, send: Send, lapse: Lapse, answering: asyncio.Task[object]) -> None:
        self._send = send
        self._lapse = lapse
        self._answering = answering
        """The request's own task; the application may send from others."""
        self._watching: asyncio.Task[None] | None = None
        self.is_cut = False

    async def send(self, message: Message) -> None:
        if self.is_cut:
            return
        if message["type"] == "http.response.start" and _is_stream(message):
            self._watching = asyncio.create_task(self._watch())
        await self._send(message)

    def stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None  # it holds on to this line by where it was cancelled

    def _reason(self) -> str | None:
        """A look that fails must not be the last one: the stream would go on with nobody looking."""
        try:
            return self._lapse()
        except Exception:
            log.exception("a stream's credential could not be checked")
            return "not_known"

    async def _watch(self) -> None:
        while (reason := self._reason()) is None:  # noqa: ASYNC110  # the clock itself ends credentials
            await asyncio.sleep(LOOK_S)
        self.is_cut = True
        # a listener that does not read does not get the last word either; its connection is closed all the same
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(LAST_WORD_S):
                last = closing_event(reason)
                await self._send({"type": "http.response.body", "body": last, "more_body": False})
        self._answering.cancel()


def _is_stream(start: Message) -> bool:
    media = MEDIA_TYPE.encode()
    return any(name.lower() == b"content-type" and value.startswith(media) for name, value in start.get("headers", ()))
