"""What a life that lasts does for itself, on a thread beside its commits.

A process that ends after a call or two would pay for it and have nothing of it: upkeep begins after some commits, and
is tried again later where no thread is to be had. Not here: what is done (state/sqlite, signing).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class AfterCommits:
    """Something to do once, when so many commits were made in a loop."""

    def __init__(self, commits: int) -> None:
        self._commits, self._left = commits, commits
        self.is_done = False

    def count(self, loop: asyncio.AbstractEventLoop | None, work: Callable[[], object]) -> None:
        """One more was made."""
        if loop is None or self.is_done:
            return
        self._left -= 1
        if self._left == 0:
            self._left, self.is_done = self._commits, on_a_thread(loop, work)


def on_a_thread(loop: asyncio.AbstractEventLoop, work: Callable[..., object], *given: Any) -> bool:
    """False where none is to be had, or no descriptor for what a first thread imports: what was committed is answered
    all the same, and the upkeep can wait."""
    try:
        loop.run_in_executor(None, work, *given)
    except (RuntimeError, OSError):
        return False
    return True
