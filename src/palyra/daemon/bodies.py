"""How much of requests is in memory at once: each body has its bound, and all of them together have one too.

Thousands of connections may be open, and each may send a body of megabytes and then wait for its deadline with the last
byte. Rules: what is being read and not yet answered is counted, of everybody, and of one principal (three quarters, so
that nobody takes it all); past that a request is refused with BUSY. Not here: a single body's bound (daemon/reading).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palyra.daemon.auth import CALLER, Caller
from palyra.daemon.routes import Refused

MOST_BYTES = 256 << 20


class Share:
    """Of one request."""

    __slots__ = ("_bodies", "_principal", "bytes")

    def __init__(self, bodies: Bodies, principal: str) -> None:
        self._bodies, self._principal, self.bytes = bodies, principal, 0

    def add(self, count: int) -> None:
        """Raises Refused past the bounds."""
        self._bodies.take(self._principal, count)
        self.bytes += count

    def give_back(self) -> None:
        self._bodies.give_back(self._principal, self.bytes)
        self.bytes = 0

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


class Bodies:
    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._all = 0
        self._of: Counter[str] = Counter()

    def hold(self, caller: Caller) -> Share:
        """For a `with`: what was taken is given back behind it."""
        return Share(self, caller.principal)

    def take(self, principal: str, count: int) -> None:
        if self._all + count > self._most or self._of[principal] + count > self._most * 3 // 4:
            raise Refused(
                429, "BUSY", "Too much data is being sent at once.", "Try again.", headers={"Retry-After": "5"}
            )
        self._all += count
        self._of[principal] += count

    def give_back(self, principal: str, count: int) -> None:
        self._all -= count
        self._of[principal] -= count
        if self._of[principal] <= 0:
            del self._of[principal]


class Counted:
    """An application that is mounted beside the table, with its bodies counted among the others. Past the bounds its
    client is told so here, and to the application it is gone."""

    def __init__(self, app: ASGIApp, bodies: Bodies, *, answer: Callable[[Refused], Response]) -> None:
        self._app = app
        self._bodies = bodies
        self._answer = answer
        """In the shape that clients of the application read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: Share | None = None
        is_refused = False

        async def counted() -> Message:
            nonlocal held, is_refused
            message = await receive()
            caller: Caller | None = scope.get(CALLER)
            if message.get("body") and caller is not None and not is_refused:
                held = held or Share(self._bodies, caller.principal)
                try:
                    held.add(len(message["body"]))
                except Refused as refusal:
                    is_refused = True
                    await self._answer(refusal)(scope, receive, send)
            return {"type": "http.disconnect"} if is_refused else message

        async def said(message: Message) -> None:
            if not is_refused:
                await send(message)

        try:
            await self._app(scope, counted, said)
        finally:
            if held is not None:
                held.give_back()
