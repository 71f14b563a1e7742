"""Hearing of other daemons' commits: `LISTEN`, so that nobody asks the server again and again.

A notification says that something changed and nothing else; whoever hears it reads the rows. It may come once for many
commits, and it may come for one's own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from palyra.cluster.postgres import CHANNEL, connect


class Follower:
    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[tuple[Any, ...]] = connect(url)
        self._connection.execute(f"LISTEN {CHANNEL}")

    async def changed(self, *, timeout_s: float) -> bool:
        """Wait for the next commit of anybody's. False when none came in time."""
        loop = asyncio.get_running_loop()
        heard = loop.create_future()
        fd = self._connection.fileno()

        def ready() -> None:
            if not heard.done() and any(True for _ in self._connection.notifies(timeout=0)):
                heard.set_result(True)

        ready()
        loop.add_reader(fd, ready)
        try:
            async with asyncio.timeout(timeout_s):
                return bool(await heard)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(fd)

    async def close(self) -> None:
        self._connection.close()
