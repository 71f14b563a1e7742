"""Server-sent events: how a feed looks on the wire, and where a listener that came back goes on.

Rules: every event carries its number as `id`, so a browser or client resumes with `Last-Event-ID`; a comment every few
seconds keeps proxies from cutting a quiet line and finds out who has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

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


def stream(events: AsyncIterator[Event]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_bytes(events), media_type=MEDIA_TYPE, headers=headers)


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
