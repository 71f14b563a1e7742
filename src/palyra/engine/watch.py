"""Ends a guest whose skill is taken out of use while it runs, whoever did it and in which process.

A look now and then, no task of its own: most guests are done before the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY_S = 0.1


class Watch:
    """Brings the deadline of `bound` to now once `is_active` says no. Made before `bound` is entered."""

    def __init__(self, bound: asyncio.Timeout, is_active: Callable[[], bool]) -> None:
        self._bound = bound
        self._is_active = is_active
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(EVERY_S, self._look)

    def stop(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        if self._is_active():
            self._next = self._loop.call_later(EVERY_S, self._look)
        else:
            self._bound.reschedule(self._loop.time())
