"""A deadline that is set with the first wait: what does not wait has none, and what waits has all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from palyra.daemon import patience
from palyra.daemon.patience import within


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def at_once(value: int) -> int:
    return value


async def later(value: int, *, turns: int = 3) -> int:
    for _ in range(turns):
        await asyncio.sleep(0.001)
    return value


def test_what_does_not_wait_needs_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience.asyncio, "timeout", None)
    assert run(within(at_once(7), 0.0)) == 7


def test_what_waits_again_and_again_comes_to_its_end() -> None:
    assert run(within(later(7), 30)) == 7


@pytest.mark.parametrize("error", [ValueError("mine"), TimeoutError("mine")])
@pytest.mark.parametrize("turns", [0, 2])
def test_its_own_errors_are_handed_on(error: Exception, turns: int) -> None:
    async def work() -> None:
        await later(0, turns=turns)
        raise error

    with pytest.raises(type(error), match="mine"):
        run(within(work(), 30))


def test_who_is_too_slow_is_stopped_and_may_tidy_up() -> None:
    tidied = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            tidied.append(1)

    with pytest.raises(TimeoutError):
        run(within(work(), 0.01))
    assert tidied == [1]


def test_a_cancellation_from_without_is_none_of_the_clocks() -> None:
    async def story() -> bool:
        task = asyncio.ensure_future(within(later(0, turns=10_000), 30))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run(story())
