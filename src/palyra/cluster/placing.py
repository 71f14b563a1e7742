"""Which node takes a dispatch: one with a free slot for its tier, the one that had its workspace last where it can.

Rules: a daemon never sends more to a node than the node has slots; who waits is served in turn; a node that was lost or
drained gets nothing more. Not here: sending (cluster/dispatching).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Set
from dataclasses import dataclass

from palyra.errors import Reason, Rejected
from palyra.signing import PublicKey

MOST_REMEMBERED = 10_000


@dataclass(slots=True, kw_only=True)
class Place:
    node_id: str
    key: PublicKey
    start: str
    """Which start of the node."""
    slots: int
    tiers: frozenset[str]
    used: int = 0
    taking: bool = True

    @property
    def free(self) -> int:
        return self.slots - self.used if self.taking else 0


class Placement:
    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._homes: OrderedDict[str, str] = OrderedDict()
        """Workspace → the node that ran its last call."""
        self._freed = asyncio.Condition()
        self._waiting = 0
        self._telling: set[asyncio.Future[None]] = set()

    def add(self, place: Place) -> None:
        known = self.places.get(place.node_id)
        if known is None:
            self.places[place.node_id] = place
        else:
            known.taking, known.start = True, place.start

    def lose(self, node_id: str) -> None:
        self.places.pop(node_id, None)

    def stop(self, node_id: str) -> None:
        if node_id in self.places:
            self.places[node_id].taking = False

    async def take(self, tier: str, workspace: str, *, patience_s: float, avoid: Set[str] = frozenset()) -> Place:
        """A slot; `Rejected(BUSY)` when none was free in time, or when no node is left at all. `avoid`: better not."""
        place = self.take_now(tier, workspace, avoid=avoid)
        if place is None:
            place = await self._wait(tier, workspace, patience_s, avoid)
            self._remember(workspace, place)
        return place

    def take_now(self, tier: str, workspace: str, *, avoid: Set[str] = frozenset()) -> Place | None:
        """A slot that is free at this moment."""
        place = None if self._waiting else self._choose(tier, workspace, avoid)  # nobody is overtaken
        if place is not None:
            place.used += 1
            self._remember(workspace, place)
        return place

    def _remember(self, workspace: str, place: Place) -> None:
        self._homes[workspace] = place.node_id
        self._homes.move_to_end(workspace)
        while len(self._homes) > MOST_REMEMBERED:
            self._homes.popitem(last=False)

    async def _wait(self, tier: str, workspace: str, patience_s: float, avoid: Set[str]) -> Place:
        self._waiting += 1
        try:
            async with asyncio.timeout(patience_s), self._freed:
                while (place := self._choose(tier, workspace, avoid)) is None:
                    await self._freed.wait()
                place.used += 1
                return place
        except TimeoutError:
            hint = "palyra cluster status shows the nodes; palyra cluster up adds one."
            raise Rejected(Reason.BUSY, f"No node had room for this call within {patience_s:.0f} s.", hint) from None
        finally:
            self._waiting -= 1

    def give_back(self, place: Place) -> None:
        """At once, so that no cancellation comes between; whoever waits is told a moment later."""
        place.used -= 1
        if self._waiting:
            telling = asyncio.ensure_future(self.told())
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def told(self) -> None:
        """Nodes came or went: whoever waits looks again."""
        async with self._freed:
            self._freed.notify_all()

    def _choose(self, tier: str, workspace: str, avoid: Set[str]) -> Place | None:
        fitting = [place for place in self.places.values() if tier in place.tiers and place.free > 0]
        last = self._homes.get(workspace)
        return max(fitting, key=lambda one: (one.node_id not in avoid, one.node_id == last, one.free), default=None)
