"""How many lines this process may have in all, whatever its calls are allowed, and who has them when there are no more.

Rules: a line is two open files, and half of those that this process may open are for lines. When all are taken, whoever
asks for one gets that of the call that has most, the one that has been quiet for longest, as long as that call keeps no
fewer: a few calls that open all they may, and say nothing, keep no other from its hosts.

Not here: what one call may have (egress/limits).
"""

from __future__ import annotations

import resource
from typing import Protocol

_FILES_A_LINE = 2
_KEPT_FREE = 256
"""Open files of this process that connections never take."""


class HasLines(Protocol):
    """serving.Serving, by shape."""

    @property
    def line_count(self) -> int: ...
    def give_one_up(self) -> None:
        """Ends one line, and gives it back."""


class Room:
    def __init__(self, lines: int | None = None) -> None:
        """`lines`: None for as many as open files allow."""
        self._free = lines_allowed() if lines is None else lines
        self._calls: set[HasLines] = set()

    def enter(self, call: HasLines) -> None:
        self._calls.add(call)

    def leave(self, call: HasLines) -> None:
        self._calls.discard(call)

    def take(self, call: HasLines) -> bool:
        if self._free <= 0:
            self._make_room(call)
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1

    def _make_room(self, call: HasLines) -> None:
        most = max(self._calls, key=lambda one: one.line_count)
        if most.line_count > call.line_count + 1:
            most.give_one_up()


def lines_allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 65536 if soft == resource.RLIM_INFINITY else soft
    return max(16, (files - _KEPT_FREE) // (2 * _FILES_A_LINE))
