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

from palyra.daemon.feed import Event, Feed
from palyra.daemon.routes import BEHIND, Refused

MEDIA_TYPE = "text/event-stream"
QUIET_S = 15.0
_MAX_DIGITS = 15


def resume_number(request: Request) -> int:
    """After which event to go on; 0 for a new listener."""
    given = request.headers.get("last-event-id", "")
    if not given:
        return 0
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise Refused(
            400,
            "MALFORMED",
            "Last-Event-ID is not the id of an event of this stream.",
            "Send the id of the last event you saw.",
        )
    return int(given)


def event_bytes(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.name.encode(), event.data)


class EventStream(StreamingResponse):
    """Tells when it is over, also where the listener had gone before the first event was asked for: a generator that
    never began has no end of its own. Starlette's own way, a task group, leaves its tasks in circles."""

    on_end: Callable[[], object] = staticmethod(lambda: None)
    behind_bytes: Callable[[], int] = staticmethod(lambda: 0)
    """What waits for its reader and is not written yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[BEHIND] = self.behind_bytes
        try:
            await self._until_gone(receive, send)
        finally:
            del scope[BEHIND]  # an idle connection keeps its last scope
            self.on_end()

    async def _until_gone(self, receive: Receive, send: Send) -> None:
        streaming = asyncio.ensure_future(self.stream_response(send))
        listening = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait([streaming, listening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            streaming.cancel()
            listening.cancel()
            await asyncio.wait([streaming, listening])
        errors = (one.exception() for one in (streaming, listening) if not one.cancelled())
        failed = next(filter(None, errors), None)
        del streaming, listening, errors  # what is raised here would hold on to itself by them
        if failed is not None:
            try:
                raise failed
            finally:
                del failed


def stream(events: AsyncIterator[Event], *, on_end: Callable[[], object] | None = None) -> EventStream:
    response = EventStream(_bytes(events), media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
    if on_end is not None:
        response.on_end = on_end
    return response


def stream_feed(
    feed: Feed,
    number: int = 0,
    *,
    sent: Callable[[Event], object] = lambda event: None,
    on_end: Callable[[], object] | None = None,
) -> EventStream:
    """A feed's events after `number`; `sent` is told of each that is on its way."""
    listener = feed.listen(number)

    async def told() -> AsyncIterator[Event]:
        async for event in listener:
            yield event
            sent(event)

    response = stream(told(), on_end=on_end)
    response.behind_bytes = lambda: listener.behind_bytes
    return response


async def _bytes(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    """With a comment where nothing comes for a while; the event that is awaited meanwhile is not lost."""
    coming: asyncio.Future[Event] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            await asyncio.wait([coming], timeout=QUIET_S)
            if not coming.done():
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
            coming = None  # what it raised holds on to this frame
