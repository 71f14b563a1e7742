"""Answers that are there at once and may be awaited all the same.

The async face has the names of the other one, with `await`. Some of its answers need no waiting and came without, and
code that does not await them goes on as it was.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Self, TypeVar

T = TypeVar("T")


class ReadyList(list[T]):
    """A list, and what awaiting it gives."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self
