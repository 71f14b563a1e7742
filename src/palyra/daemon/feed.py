"""Events on their way to whoever listens: numbered, kept for a while, resumable by number.

Rules: putting never waits; what is kept is bounded in number and bytes, and who comes too late is told how many events
were dropped; a listener that goes away leaves nothing behind.

Not here: how events look on the wire (daemon/sse).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from palyra.values import dataclass

MAX_EVENTS = 4096
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    name: str
    data: bytes
    """JSON, on one line."""


class Feed:
    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._last = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    def put(self, name: str, data: bytes) -> None:
        if self.closed:
            return
        self._last += 1
        data = bytes(memoryview(data))  # orjson's results hold on to buffers ten times their length
        self._events.append(Event(self._last, name, data))
        self._bytes += len(data)
        while len(self._events) > self._max_events or (self._bytes > self._max_bytes and len(self._events) > 1):
            self._bytes -= len(self._events.popleft().data)
        self._wake()

    def close(self) -> None:
        """No more will come; listeners end when they have seen what there is."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def since(self, number: int) -> tuple[int, list[Event]]:
        """(how many after `number` are gone, those that are kept)."""
        found: list[Event] = []
        for event in reversed(self._events):  # a listener that keeps up does not walk over all that it has seen
            if event.number <= number:
                break
            found.append(event)
        found.reverse()
        oldest = self._events[0].number if self._events else self._last + 1
        return max(0, oldest - number - 1), found

    async def listen(self, number: int = 0) -> AsyncIterator[Event]:
        """Everything after `number`, then what comes, until the feed is closed. Number 0 is told as `gap`."""
        while True:
            missed, found = self.since(number)
            if missed and number < self._last:
                number += missed
                yield Event(number, "gap", b'{"missed":%d}' % missed)
            for event in found:
                number = event.number
                yield event
            if self._last > number:
                continue
            if self.closed:
                return
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
