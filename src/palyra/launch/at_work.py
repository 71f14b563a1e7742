"""How many calls have a sandbox here at once, and who waits for room; first come, first served.

A plain number where there is room, which is nearly always: a lock of the loop's costs each call more than its sandbox's
message. Not here: how many may be (process).
"""

from __future__ import annotations

import asyncio
from collections import deque


class AtWork:
    """Used on one loop. Whoever has entered leaves."""

    __slots__ = ("_most", "_waiting", "running")

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0
        """Calls that have a sandbox in this executor now."""

    def has_entered(self) -> bool:
        """Whether there was room at once; otherwise it is waited for (`turn`)."""
        if self.running >= self._most or self._waiting:
            return False
        self.running += 1
        return True

    async def turn(self) -> None:
        """Until somebody has left; then this one has entered."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.leave()  # the place had just been given to us
            elif mine in self._waiting:
                self._waiting.remove(mine)
            raise

    def leave(self) -> None:
        self.running -= 1
        while self._waiting and self.running < self._most:
            mine = self._waiting.popleft()
            if not mine.done():
                self.running += 1
                mine.set_result(None)
