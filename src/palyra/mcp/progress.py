"""A program's output as progress notifications: what came since the last one, at most so often, never the whole flood.

Rules: only redacted bytes come here; a slow client slows nothing but its own notifications; the count only rises.
"""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from palyra.model.outcome import StreamName

EVERY_S = 0.1
MAX_CHARS = 2000

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class Progress:
    """An `on_output`; `reporting()` sends while its block runs."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._bytes = 0
        self._told = 0
        self._text = ""
        self._came = asyncio.Event()
        decoder = getincrementaldecoder("utf-8")
        self._decoders = {name: decoder("replace") for name in StreamName}

    def __call__(self, stream: StreamName, data: bytes) -> None:
        self._bytes += len(data)
        self._text = (self._text + self._decoders[stream].decode(data))[-MAX_CHARS:]
        self._came.set()

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        pump = asyncio.create_task(self._pump())
        try:
            yield
        finally:
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        await self._tell()

    async def _pump(self) -> None:
        while True:
            await self._came.wait()
            await self._tell()
            await asyncio.sleep(EVERY_S)

    async def _tell(self) -> None:
        self._came.clear()
        if self._bytes > self._told:
            self._told, text, self._text = self._bytes, self._text, ""
            await self._report(float(self._told), None, text)
