"""A stream is worth no more than the credential that opened it: whoever lost that is told why, and the line is cut.

Every stream of server-sent events goes through here, the routes' and those of mounted applications: no handler has to
think of it. A credential is looked at again every second; a token that was revoked or has expired, a session that was
logged out, has expired or lost its token, end the stream with one last event `closed`. It bears no id, so a listener
that comes back with another credential goes on where it was. What runs behind the stream sees its listener gone.

Not here: what holds (tokens/rules, daemon/sessions), requests that are no streams: they are checked once, at the door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palyra.daemon.auth import Caller, Proof
from palyra.daemon.sse import MEDIA_TYPE
from palyra.daemon.state import State
from palyra.tokens.rules import Token

LOOK_S = 1.0
LAST_WORD_S = 2.0
CALLER = "palyra.caller"
"""Where a request's scope says who was let in."""
WORDS = {
    "token_revoked": "The token was revoked.",
    "token_expired": "The token has expired.",
    "session_ended": "The session has ended.",
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
    line = _Line(send)
    answering = asyncio.ensure_future(_answer(app, scope, receive, line.send))
    try:
        while not answering.done():
            await asyncio.wait([answering], timeout=LOOK_S)
            reason = lapse() if line.is_stream and not answering.done() else None
            if reason is not None:
                await line.cut(closing_event(reason))
                return
        answering.result()
    finally:
        if not answering.done():
            answering.cancel()
            await asyncio.wait([answering])


async def _answer(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


class _Line:
    """What an application sends, and whether it is a stream of events."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_cut = False
        self.is_stream = False

    async def send(self, message: Message) -> None:
        if self._is_cut:
            return
        if message["type"] == "http.response.start":
            self.is_stream = any(
                name.lower() == b"content-type" and value.startswith(MEDIA_TYPE.encode())
                for name, value in message.get("headers", ())
            )
        await self._send(message)

    async def cut(self, last: bytes) -> None:
        """A listener that does not read does not get the last word either; its connection is closed all the same."""
        self._is_cut = True
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._send({"type": "http.response.body", "body": last, "more_body": False})
