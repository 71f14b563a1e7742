"""How many at once of each kind: a skill that is slow, or called in a flood, leaves room for the others.

Whoever waits for its kind holds no room that others could use. A kind nobody uses or waits for is forgotten, so that
the table is never longer than the calls there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palyra.values import dataclass


@dataclass(slots=True)
class _Share:
    room: asyncio.Semaphore
    users: int = 0
    """Those inside and those who wait."""


class Shares:
    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._shares)

    @asynccontextmanager
    async def of(self, kind: str) -> AsyncIterator[None]:
        share = self._shares.setdefault(kind, _Share(asyncio.Semaphore(self._at_once)))
        share.users += 1
        try:
            async with share.room:
                yield
        finally:
            share.users -= 1
            if not share.users:
                self._shares.pop(kind, None)
