"""Events on their way to whoever listens: numbered, kept for a while, resumable by number.

Rules: putting never waits; what is kept is bounded in number and bytes, and who comes too late is told how many events
were dropped; a listener that goes away leaves nothing behind, and one that does not read says how much it holds.

Not here: how events look on the wire (daemon/sse), who holds too much (daemon/wire_guard).
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
        self._put_bytes = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    @property
    def put_bytes(self) -> int:
        """All that ever came."""
        return self._put_bytes

    def put(self, name: str, data: bytes) -> None:
        if self.closed:
            return
        self._last += 1
        data = bytes(memoryview(data))  # orjson's results hold on to buffers ten times their length
        self._events.append(Event(self._last, name, data))
        self._bytes += len(data)
        self._put_bytes += len(data)
        while len(self._events) > self._max_events or (self._bytes > self._max_bytes and len(self._events) > 1):
            self._bytes -= len(self._events.popleft().data)
        self._wake()

    def was_sent(self, number: int) -> None:
        """To the one listener that nothing may be dropped for: of what it has, only as much is kept as for others."""
        while self._bytes > MAX_BYTES and self._events[0].number <= number:
            self._bytes -= len(self._events.popleft().data)

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

    def listen(self, number: int = 0) -> Listener:
        return Listener(self, number)

    async def more(self) -> None:
        """Until something comes, or the end."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._last


class Listener:
    """Everything after a number, then what comes, until the feed is closed. What was dropped is told as `gap`."""

    def __init__(self, feed: Feed, number: int) -> None:
        self._feed = feed
        self._number = number
        self._taken = 0
        """Bytes that were taken from the feed and wait here for their turn."""
        self._seen = feed.put_bytes - feed.kept_bytes
        """How much had ever come when it last looked."""

    @property
    def behind_bytes(self) -> int:
        """What is held for it: who does not read keeps it all, also what the feed itself has dropped since."""
        return self._taken + min(self._feed.kept_bytes, self._feed.put_bytes - self._seen)

    async def __aiter__(self) -> AsyncIterator[Event]:
        feed = self._feed
        while True:
            missed, found = feed.since(self._number)
            self._seen, self._taken = feed.put_bytes, sum(len(event.data) for event in found)
            if missed and self._number < feed.last:
                self._number += missed
                yield Event(self._number, "gap", b'{"missed":%d}' % missed)
            for event in found:
                self._number = event.number
                self._taken -= len(event.data)
                yield event
            if feed.last > self._number:
                continue
            if feed.closed:
                return
            await feed.more()
