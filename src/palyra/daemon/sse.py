"""Server-sent events: how a feed looks on the wire, and where a listener that came back goes on.

Rules: every event carries its number as `id`, so a browser or client resumes with `Last-Event-ID`; a comment every few
seconds keeps proxies from cutting a quiet line and finds out who has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from palyra.daemon.feed import Event
from palyra.daemon.routes import Refused

MEDIA_TYPE = "text/event-stream"
QUIET_S = 15.0
_MAX_DIGITS = 15


def resume_number(request: Request) -> int:
    """After which event to go on; 0 for a new listener."""
    given = request.headers.get("last-event-id", "")
    if not given:
        return 0
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise Refused(400, "MALFORMED", "Last-Event-ID is not one of ours.", "Send the id of the last event you saw.")
    return int(given)


def event_bytes(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.name.encode(), event.data)


class _Stream(StreamingResponse):
    """Tells when it is over, also where the listener had gone before the first event was asked for: a generator that
    never began has no end of its own."""

    on_end: Callable[[], object] = staticmethod(lambda: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.on_end()


def stream(events: AsyncIterator[Event], *, on_end: Callable[[], object] | None = None) -> StreamingResponse:
    response = _Stream(_bytes(events), media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
    if on_end is not None:
        response.on_end = on_end
    return response


async def _bytes(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    """With a comment where nothing comes for a while; the event that is awaited meanwhile is not lost."""
    coming: asyncio.Future[Event] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait([coming], timeout=QUIET_S)
            if not done:
                yield b": quiet\n\n"
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield event_bytes(event)
    finally:
        if coming is not None:
            coming.cancel()
