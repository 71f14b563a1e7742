"""Who waits for the next commit: callers of one event loop, gathered so that they share it.

Whoever comes alone goes at once; where several come, the loop turns a few times before the commit, so that those who
are on their way are in it too: each that shares saves a commit and a signature of its own. A caller that was cancelled
before its turn finds nothing done; the record of something that has run is written all the same.

Not here: the commit itself (state/writer), what becomes of one without an answer (state/absence).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol, TypeVar

from palyra.errors import StateError
from palyra.model.record import Receipt
from palyra.state.absence import AWAY_PAUSE_S, Unbroken, Waiting
from palyra.state.connection import PATIENCE_S
from palyra.state.lock import FIRST_PAUSE_S, LONGEST_PAUSE_S

T = TypeVar("T")
TURNS_TO_GATHER = 3
"""Of the loop: a request that has come takes as many to its entry."""


class Commits(Protocol):
    """The writer's side."""

    def try_all(self, batch: list[Waiting[Any]]) -> bool:
        """One transaction for all of them; False when it must be tried again for those that are not over."""

    def notice_fork(self) -> None:
        """Who waits is forgotten in a child: its parent commits their work, and nobody may do that twice."""

    def is_away(self) -> bool:
        """The server is not there, and is waited for."""

    def too_long(self) -> StateError: ...
    def look_after(self, loop: asyncio.AbstractEventLoop | None) -> None: ...


class Sharing:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: list[Waiting[Any]] = []
        self._last_batch = 1
        self._turn_is_used = False
        self._pause_s = 0.0
        self._waiting_since: float | None = None

    @property
    def has_company(self) -> bool:
        """Somebody waits, or several came together the last time."""
        return bool(self._queue) or self._last_batch > 1

    def forget(self) -> None:
        """After a fork: the loop and who waits in it are the parent's."""
        self._loop, self._queue = None, []

    def enqueue(self, waiting: Waiting[T]) -> asyncio.Future[tuple[T, Receipt | None]]:
        goes_at_once, loop = self.goes_at_once(), self._loop
        assert loop is not None, "it was asked for"
        waiting.future = Unbroken(loop=loop) if waiting.closing else loop.create_future()
        if goes_at_once and self._commits.try_all([waiting]):
            waiting.answer()
            return waiting.future
        if not self._queue:  # before there is one: Ctrl-C in between would leave a queue that nobody looks at
            self._pause_s, self._waiting_since = FIRST_PAUSE_S, None
            loop.call_soon(self._gather, loop, TURNS_TO_GATHER)
        self._queue.append(waiting)
        return waiting.future

    def goes_at_once(self) -> bool:
        """Whoever comes alone gains nothing by waiting for others to share the commit: the first of a turn of the loop,
        where the last commit was one caller's too. The others of that turn go together."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                self._leave(self._loop)
            self._loop, self._turn_is_used = loop, False
        if self._turn_is_used or self._queue or self._last_batch > 1:
            return False
        self._turn_is_used = True
        loop.call_soon(self._end_turn, loop)
        return True

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Another loop comes. Whoever waits in one that stands still is answered now: nobody else would ever do it."""
        if loop.is_running():
            raise StateError("The state is used from two event loops.", "Open one Palyra for each.")
        batch, self._queue = self._still_wait(loop), []
        if batch and not self._commits.try_all(batch):
            for waiting in batch:
                waiting.error = waiting.error if waiting.is_over else self._commits.too_long()
        for waiting in batch if not loop.is_closed() else ():
            waiting.answer()

    def _still_wait(self, loop: asyncio.AbstractEventLoop) -> list[Waiting[Any]]:
        """Without those who were cancelled, or whose loop was closed; but the records of what has run."""
        ended = loop.is_closed()
        waiting = [one for one in self._queue if one.future is not None and not one.future.done()]
        return [one for one in waiting if one.closing or not ended]

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Its caller has its answer: what a commit leaves to do keeps nobody waiting here."""
        self._turn_is_used = False
        self._commits.look_after(loop)

    def _gather(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        if turns > 0:
            loop.call_soon(self._gather, loop, turns - 1)
        else:
            self._flush(loop)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        queue = self._queue
        self._commits.notice_fork()
        if self._queue is not queue:  # the parent's, and copies of who waits there
            for waiting in queue:
                waiting.error = StateError("This process was forked while it waited.", "Its parent goes on with it.")
                waiting.answer()
        if loop is not self._loop:
            return
        batch, self._queue = self._still_wait(loop), []
        if not batch:
            return
        self._last_batch = len(batch)
        try:
            if not self._commits.try_all(batch):
                batch = self._again_or_over(loop, batch)
        except BaseException:  # Ctrl-C: whoever runs the loop on finds nobody waiting for ever
            for waiting in batch:
                waiting.error = waiting.error or _broken_off()
                waiting.answer()
            raise
        for waiting in batch:
            waiting.answer()
        self._commits.look_after(loop)

    def _again_or_over(self, loop: asyncio.AbstractEventLoop, batch: list[Waiting[Any]]) -> list[Waiting[Any]]:
        """Those that get an answer now; the others wait in the queue."""
        now, is_away = time.monotonic(), self._commits.is_away()
        self._waiting_since = None if is_away else self._waiting_since or now
        if self._waiting_since is None or now - self._waiting_since < PATIENCE_S:
            self._queue = [waiting for waiting in batch if not waiting.is_over]
            loop.call_later(AWAY_PAUSE_S if is_away else self._pause_s, self._flush, loop)
            self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)
            batch = [waiting for waiting in batch if waiting.is_over]
        for waiting in batch:
            waiting.error = waiting.error if waiting.is_over else self._commits.too_long()
        return batch


def _broken_off() -> StateError:
    return StateError(
        "The commit was broken off (Ctrl-C), perhaps behind its own end.", "Look what is recorded: palyra journal tail"
    )
