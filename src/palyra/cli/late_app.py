"""An application that is made when somebody first asks for it, and lives until the daemon ends.

What MCP brings along is as large as the rest of the daemon: who does not speak it waits for none of that at the start
and has none of it in memory. Rules: a thread brings it in, so that others are answered meanwhile; one task opens and
closes it, as task groups want it; where that fails, the next request tries again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module

from starlette.types import ASGIApp, Receive, Scope, Send

Opened = Callable[[], AbstractAsyncContextManager[ASGIApp]]


class LateApp:
    """`running()` must be entered before the first request, and left after the last."""

    def __init__(self, module: str, opened: Opened) -> None:
        self._module = module
        self._opened = opened
        self._over = asyncio.Event()
        self._made: asyncio.Future[ASGIApp] | None = None
        self._life: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._over.set()
            if self._life is not None:
                await self._life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._life is None or self._life.done():
            self._made = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._made))
        assert self._made is not None
        app = await asyncio.shield(self._made)  # who goes away takes it from nobody else
        await app(scope, receive, send)

    async def _live(self, made: asyncio.Future[ASGIApp]) -> None:
        try:
            await asyncio.to_thread(_bring, self._module)
            async with self._opened() as app:
                made.set_result(app)
                await self._over.wait()
        except Exception as error:
            if made.done():
                raise
            made.set_exception(error)


def _bring(module: str) -> None:
    """It stays, as what the daemon was started with does: see cli/light."""
    import_module(module)
    gc.collect()
    gc.freeze()
