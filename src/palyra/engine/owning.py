"""Runs of this process that own background processes: those that are ended when it closes.

Rule: a run is kept for as long as a process of its own can be alive, and no longer. Every one ends at its deadline,
whoever holds its run, so a run whose last deadline has passed owns nothing: a daemon that serves for months keeps
those of the last half hour, not one for each run that its client never ended.

Not here: ending them (a port), and the keeper's watch over a holder that dies.
"""

from __future__ import annotations

from collections import OrderedDict

from palyra.model.process import ProcessOwner

GRACE_US = 60_000_000
"""From a deadline to the last process of a tree being gone; starting took time as well."""


class OwningRuns:
    def __init__(self) -> None:
        self._until_us: OrderedDict[ProcessOwner, int] = OrderedDict()

    def note(self, owner: ProcessOwner, *, now_us: int, lifetime_ms: int) -> None:
        """Before its process is started: one that is started while this closes is ended too."""
        until_us = max(now_us + lifetime_ms * 1000 + GRACE_US, self._until_us.pop(owner, 0))
        self._until_us[owner] = until_us
        # A short life behind a long one waits for it: that is bounded by the longest there may be.
        while next(iter(self._until_us.values())) <= now_us:
            self._until_us.popitem(last=False)

    def forget(self, owner: ProcessOwner) -> None:
        self._until_us.pop(owner, None)

    def all(self) -> tuple[ProcessOwner, ...]:
        return tuple(self._until_us)
