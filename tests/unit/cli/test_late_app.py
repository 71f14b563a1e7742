"""An application that comes with its first request: made once, closed by who opened it, tried again where it failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from palyra.cli.late_app import LateApp


class Made:
    """Counts how often it is opened and closed, and by which tasks."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.events: list[str] = []
        self.tasks: set[object] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        if self.failures:
            raise self.failures.pop()
        self._note("opened")
        yield self.answer
        self._note("closed")

    def _note(self, what: str) -> None:
        self.events.append(what)
        self.tasks.add(asyncio.current_task())

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.events.append(scope["path"])


def app_of(made: Made) -> LateApp:
    return LateApp("json", made.opened)


async def ask(app: LateApp, path: str) -> None:
    await app({"path": path}, None, None)  # type: ignore[arg-type]  # nothing is read or sent


def test_it_is_made_once_for_all_who_ask_and_closed_by_the_task_that_opened_it() -> None:
    made = Made()

    async def work() -> None:
        app = app_of(made)
        async with app.running():
            await asyncio.gather(*(ask(app, "/a") for _ in range(3)))
            await ask(app, "/b")

    asyncio.run(work())
    assert made.events == ["opened", "/a", "/a", "/a", "/b", "closed"]
    assert len(made.tasks) == 1


def test_where_nobody_asks_nothing_is_made() -> None:
    made = Made()

    async def work() -> None:
        async with app_of(made).running():
            await asyncio.sleep(0)

    asyncio.run(work())
    assert made.events == []


def test_who_asks_when_it_fails_is_told_and_the_next_one_tries_again() -> None:
    made = Made(OSError("no room"))

    async def work() -> None:
        app = app_of(made)
        async with app.running():
            with pytest.raises(OSError, match="no room"):
                await ask(app, "/a")
            await ask(app, "/b")

    asyncio.run(work())
    assert made.events == ["opened", "/b", "closed"]


def test_who_goes_away_while_it_is_made_takes_it_from_nobody() -> None:
    made = Made()

    async def work() -> None:
        app = app_of(made)
        async with app.running():
            first, second = (asyncio.create_task(ask(app, path)) for path in ("/a", "/b"))
            await asyncio.sleep(0)
            first.cancel()
            await second

    asyncio.run(work())
    assert made.events == ["opened", "/b", "closed"]
