"""Which dispatches a node has had: each epoch once, and nothing older than what was seen. Pure.

Rules: a dispatch is remembered until its token is over, because until then it could be brought again; what was refused
for want of a slot counts as had, since it is sent anew with the next epoch. Memory is bounded: beyond it the one that
is over first is forgotten, and from then on nothing that ends as early is taken, had or not.
"""

from __future__ import annotations

import heapq

from palyra.errors import TrustError

REMEMBERED = 100_000


class Fence:
    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._had: dict[str, tuple[int, int]] = {}
        """Dispatch → (its newest epoch, when the last of its tokens is over)."""
        self._ends: list[tuple[int, str]] = []
        """(when it is over, dispatch), the first first."""
        self._floor_unix_ms = 0

    def pass_once(self, dispatch_id: str, epoch: int, *, expires_unix_ms: int, now_unix_ms: int) -> None:
        """`TrustError` for one that was here, or is older than one that was."""
        newest, over = self._had.get(dispatch_id, (0, 0))
        if epoch <= newest or expires_unix_ms <= self._floor_unix_ms:
            raise TrustError("This dispatch was already taken.")
        over = max(over, expires_unix_ms)  # a daemon whose clock was set back signs a later epoch that ends earlier
        self._had[dispatch_id] = epoch, over
        heapq.heappush(self._ends, (over, dispatch_id))
        while self._ends and (self._ends[0][0] <= now_unix_ms or len(self._ends) > self._remembered):
            self._forget_first()

    def _forget_first(self) -> None:
        over, dispatch_id = heapq.heappop(self._ends)
        if self._had.get(dispatch_id, (0, 0))[1] == over:  # else a token of it is over later
            del self._had[dispatch_id]
            self._floor_unix_ms = max(self._floor_unix_ms, over)
