"""What a cluster of many machines can do, computed from costs that were measured on one: a simulation, not a claim.

Calls go round: a daemon's thread takes `daemon_ms` for each (deciding, planning, signing, the workspace by digest); the
one sequencer commits everything that waits in a batch of its own (`commit_ms` + `entry_ms` an entry, two batches a
call); a node's slot is taken for `node_ms` and the program's own time. Whoever asked asks again at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

MOST_CALLERS = 4000
WARM_UP = 4
"""So many times what is counted goes by before counting: a thousand nodes are not full at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    daemon_ms: float
    commit_ms: float
    entry_ms: float
    node_ms: float
    program_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    nodes: int
    slots: int
    daemons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    calls_per_s: float
    daemons_busy: float
    sequencer_busy: float
    slots_busy: float

    @property
    def limit(self) -> str:
        busy = {"daemons": self.daemons_busy, "sequencer": self.sequencer_busy, "slots": self.slots_busy}
        return max(busy, key=lambda name: busy[name])


class Simulation:
    """Events in order of time; every call passes daemon → commit → slot → daemon → commit."""

    def __init__(self, shape: Shape, costs: Costs) -> None:
        self._shape, self._costs = shape, costs
        self._now = 0.0
        self._events: list[tuple[float, int, str, tuple[int, ...]]] = []
        self._tick = 0
        self._daemons: list[deque[tuple[int, int]]] = [deque() for _ in range(shape.daemons)]
        self._working = [False] * shape.daemons
        self._commits: deque[tuple[int, int]] = deque()
        self._committing = False
        self._slots_free = shape.nodes * shape.slots
        self._for_slots: deque[int] = deque()
        self._busy = {"daemons": 0.0, "sequencer": 0.0, "slots": 0.0}
        self._done = 0

    def run(self, seconds: float) -> Figures:
        # Enough that slots are not idle for want of calls, and no more than would only wait.
        callers = min(2 * self._shape.nodes * self._shape.slots, MOST_CALLERS)
        for caller in range(callers):
            self._to_daemon(caller, 0)
        self._run_until(WARM_UP * seconds * 1000)
        self._busy, self._done = dict.fromkeys(self._busy, 0.0), 0
        self._run_until((WARM_UP + 1) * seconds * 1000)
        span = seconds * 1000
        slots = self._shape.nodes * self._shape.slots
        return Figures(
            calls_per_s=self._done / seconds,
            daemons_busy=min(1.0, self._busy["daemons"] / span / self._shape.daemons),
            sequencer_busy=min(1.0, self._busy["sequencer"] / span),
            slots_busy=min(1.0, self._busy["slots"] / span / slots),
        )

    def _run_until(self, end: float) -> None:
        while self._events and self._events[0][0] < end:
            self._now, _, what, given = heapq.heappop(self._events)
            getattr(self, f"_{what}")(*given)

    def _after(self, ms: float, what: str, *given: int) -> None:
        self._tick += 1
        heapq.heappush(self._events, (self._now + ms, self._tick, what, given))

    def _to_daemon(self, caller: int, half: int) -> None:
        daemon = caller % self._shape.daemons
        self._daemons[daemon].append((caller, half))
        if not self._working[daemon]:
            self._work(daemon)

    def _work(self, daemon: int) -> None:
        if not self._daemons[daemon]:
            self._working[daemon] = False
            return
        self._working[daemon] = True
        caller, half = self._daemons[daemon].popleft()
        cost = self._costs.daemon_ms / 2
        self._busy["daemons"] += cost
        self._after(cost, "worked", daemon, caller, half)

    def _worked(self, daemon: int, caller: int, half: int) -> None:
        self._commits.append((caller, half))
        if not self._committing:
            self._commit()
        self._work(daemon)

    def _commit(self) -> None:
        """One daemon's batch at a time: those of one daemon that wait go together."""
        if not self._commits:
            self._committing = False
            return
        self._committing = True
        daemon = self._commits[0][0] % self._shape.daemons
        batch = [one for one in self._commits if one[0] % self._shape.daemons == daemon]
        self._commits = deque(one for one in self._commits if one[0] % self._shape.daemons != daemon)
        cost = self._costs.commit_ms + self._costs.entry_ms * len(batch)
        self._busy["sequencer"] += cost
        self._after(cost, "committed", *(number for one in batch for number in one))

    def _committed(self, *flat: int) -> None:
        for caller, half in zip(flat[::2], flat[1::2], strict=True):
            if half:
                self._done += 1
                self._to_daemon(caller, 0)
            else:
                self._for_slots.append(caller)
        self._start()
        self._commit()

    def _start(self) -> None:
        while self._slots_free and self._for_slots:
            self._slots_free -= 1
            cost = self._costs.node_ms + self._costs.program_ms
            self._busy["slots"] += cost
            self._after(cost, "ended", self._for_slots.popleft())

    def _ended(self, caller: int) -> None:
        self._slots_free += 1
        self._to_daemon(caller, 1)
        self._start()
