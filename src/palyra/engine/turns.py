"""Whose turn it is: which calls of one run may go on together, by the class of their tool.

Rules: `read_only` and `idempotent` calls share; `path_scoped` and `exclusive` ones go alone within their run; first
come, first served, so no call starves. Runs never wait for each other. The queue of a run is bounded: past it a call
is refused with BUSY instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palyra.errors import Reason, Rejected
from palyra.model.tool import Parallelism

MAX_WAITING = 1024
SHARED = frozenset({Parallelism.READ_ONLY, Parallelism.IDEMPOTENT})


class _Line:
    """The queue of one run: how many go on now, and who waits."""

    __slots__ = ("alone", "sharing", "waiting")

    def __init__(self) -> None:
        self.sharing = 0
        self.alone = False
        self.waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @property
    def is_idle(self) -> bool:
        return not (self.sharing or self.alone or self.waiting)

    def may_enter(self, *, shared: bool) -> bool:
        return not self.alone and (shared or not self.sharing)

    def enter(self, *, shared: bool) -> None:
        if shared:
            self.sharing += 1
        else:
            self.alone = True

    def leave(self, *, shared: bool) -> None:
        if shared:
            self.sharing -= 1
        else:
            self.alone = False
        while self.waiting and self.may_enter(shared=self.waiting[0][0]):
            next_shared, future = self.waiting.popleft()
            if not future.done():
                self.enter(shared=next_shared)
                future.set_result(None)


class Turns:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def take(self, run_id: str, parallelism: Parallelism) -> AsyncIterator[None]:
        line = self._lines.setdefault(run_id, _Line())
        shared = parallelism in SHARED
        await self._wait(line, shared=shared)
        try:
            yield
        finally:
            line.leave(shared=shared)
            if line.is_idle:
                self._lines.pop(run_id, None)

    async def _wait(self, line: _Line, *, shared: bool) -> None:
        if not line.waiting and line.may_enter(shared=shared):
            line.enter(shared=shared)
            return
        if len(line.waiting) >= MAX_WAITING:
            raise Rejected(
                Reason.BUSY,
                f"{MAX_WAITING} calls of this run are waiting already.",
                "Wait for some to finish, or use another run.",
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append((shared, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                line.leave(shared=shared)  # the turn had just been given to us
            else:
                line.waiting.remove((shared, future))
            raise
