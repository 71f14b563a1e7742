"""A deadline for work that may have to wait, set when it does: most bodies have come with their heads, and a clock that
nothing runs against costs as much as reading one.

Not here: what is too slow for what (daemon/reading).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def within(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """`TimeoutError` when it takes longer than this from its first wait on."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    async with asyncio.timeout(timeout_s):
        return await _go_on(work, waits_for)


@types.coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """`await work`, of which the first step was taken: what it waits for goes to the loop, what comes back to it."""
    step: Callable[[Any], Any]
    while True:
        try:
            answer = yield waits_for
        except BaseException as error:  # noqa: BLE001  # cancelled from without: the work is told
            step, told = work.throw, error
        else:
            step, told = work.send, answer
        try:
            waits_for = step(told)
        except StopIteration as done:
            result: T = done.value
            return result
