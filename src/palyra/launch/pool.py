"""Sandboxes started ahead of time, each used once.

A call that finds one whose template equals its own saves the start; otherwise it starts cold, so a pool is never
needed for correctness. Rules: a held sandbox serves one call and is thrown away; it is checked again when it is taken
(alive, young enough, its mounts still where the plan puts them and the host's as they were, the same folders behind
them); the template holds
everything that was planned, so a changed policy, configuration, protected path or limit on processes simply does not
match. Bounded in number; the template used longest ago gives way; idle ones end by age, by `close`, or with us.

Refills happen after a call has been answered, one at a time, from the loop's own thread: a sandbox dies with the thread
that started it. Not here: starting (held), using (process), what a template is (held).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from palyra.launch.at_work import AtWork
from palyra.launch.executor import LaunchFailed
from palyra.launch.held import Held, Template
from palyra.launch.verifying import is_as_planned, shows_same_mounts
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.launch.host_mounts import HostMounts

log = logging.getLogger("palyra.launch.pool")

LATE_S = 0.002
AHEAD_S = 0.002
"""Of a program that ends in the moment that is waited for it in place."""
Start = Callable[[Template], Awaitable[Held]]
End = Callable[[Held], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    per_template: int = 2
    total: int = 8
    max_age_s: float = 60.0
    refill_after_s: float = 0.004
    """A call still has its result to make durable when its sandbox is used up."""
    templates: int = 16
    """Remembered shapes of calls; more than can be held ready at once."""


@dataclass(slots=True)
class PoolCounts:
    """For metrics: what the pool did so far."""

    hits: int = 0
    misses: int = 0
    started: int = 0
    discarded: int = 0


class Pool:
    def __init__(self, start: Start, end: End, size: PoolSize, at_work: AtWork) -> None:
        self._at_work = at_work
        self._start = start
        self._end = end
        self._size = size
        self._ready: OrderedDict[Template, deque[tuple[float, Held, int]]] = OrderedDict()
        """Since when each waits, and which mounts the host had then."""
        self._mounts: HostMounts | None = None
        self._refilling: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        """The next refill: the answer goes out first."""
        self._ahead: Template | None = None
        """What the last call wished for while its program ran; the next refill is due then."""
        self._aging: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._pid = os.getpid()
        self.counts = PoolCounts()

    @property
    def idle(self) -> int:
        return sum(len(queue) for queue in self._ready.values())

    def take(self, template: Template) -> Held | None:
        """A sandbox ready for this template, or None: then the call starts one itself."""
        if self._pid != os.getpid():
            self._ready.clear()  # a fork: these sandboxes are the parent's, to use and to end
            self._pid = os.getpid()
        queue = self._ready.get(template)
        now = asyncio.get_running_loop().time()
        while queue:
            started, held, mounts = queue.popleft()
            is_young = now - started < self._size.max_age_s
            if is_young and self._has_same_mounts(held, template, mounts) and is_as_planned(held, template):
                self.counts.hits += 1
                return held
            self._discard(held)
        self.counts.misses += 1
        return None

    def _has_same_mounts(self, held: Held, template: Template, mounts: int) -> bool:
        """A host that starts containers mounts something all the time, and seldom below what is shown."""
        return not template.pid_namespace or mounts == self._changes() or shows_same_mounts(held, template)

    def _changes(self) -> int:
        if self._mounts is None:
            from palyra.launch.host_mounts import HostMounts  # nobody needs it who starts one sandbox

            self._mounts = HostMounts()
        return self._mounts.changes()

    def wish(self, template: Template) -> None:
        """This shape of call was used: keep some ready. Work begins once the loop has answered the call."""
        if self._ahead is template:
            self._ahead = None
            return
        self._wish(template, self._size.refill_after_s)

    def wish_ahead(self, template: Template) -> None:
        """The same while the program runs, when nobody waits for us: where it ends in time, that is all."""
        self._wish(template, self._size.refill_after_s + AHEAD_S)
        self._ahead = template if self._due is not None else None

    def _wish(self, template: Template, after_s: float) -> None:
        if self._closed or self._size.total <= 0:
            return
        self._ready.setdefault(template, deque())
        self._ready.move_to_end(template)
        while len(self._ready) > self._size.templates:
            _, dropped = self._ready.popitem(last=False)
            for _, held, _ in dropped:
                self._discard(held)
        if self._due is None and (self._refilling is None or self._refilling.done()):
            self._due = asyncio.get_running_loop().call_later(after_s, self._refill_in_time)

    def _refill_in_time(self) -> None:
        """A loop that comes late was held up, by a commit on a slow disk perhaps: whoever waited for it goes first. A
        program that still runs wishes again at its end."""
        loop, due = asyncio.get_running_loop(), self._due
        if self._ahead is not None and self._at_work.running:
            self._due = self._ahead = None
        elif due is not None and loop.time() - due.when() > max(LATE_S, self._size.refill_after_s / 2):
            self._due = loop.call_later(self._size.refill_after_s, self._refill_in_time)
        else:
            self._start_refilling()

    def _start_refilling(self) -> None:
        self._due = self._ahead = None
        self._refilling = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        while not self._closed and (template := self._lacking()) is not None:
            try:
                mounts = self._changes()
                held = await self._start(template)
            except (LaunchFailed, OSError) as error:
                log.warning("no sandbox could be started ahead: %s", error)
                return
            self.counts.started += 1
            if template not in self._ready:
                await self._end(held)
                continue
            self._ready[template].append((asyncio.get_running_loop().time(), held, mounts))
            self._arm()

    def _lacking(self) -> Template | None:
        """The template of the last call, if too few wait for it. Never an older one: what it was planned from may have
        been changed since by a program that runs right now."""
        template = next(reversed(self._ready), None)
        if template is None or len(self._ready[template]) >= self._size.per_template:
            return None
        return template if self._make_room(template) else None

    def _make_room(self, wanted: Template) -> bool:
        if self.idle < self._size.total:
            return True
        for template, queue in self._ready.items():
            if template is wanted:
                return False
            if queue:
                self._discard(queue.popleft()[1])
                return True
        return False

    def _arm(self) -> None:
        if self._aging is None:
            loop = asyncio.get_running_loop()
            self._aging = loop.call_later(self._size.max_age_s / 4, self._drop_old)

    def _drop_old(self) -> None:
        self._aging = None
        oldest = asyncio.get_running_loop().time() - self._size.max_age_s
        for queue in self._ready.values():
            while queue and queue[0][0] <= oldest:
                self._discard(queue.popleft()[1])
        if self.idle:
            self._arm()

    def _discard(self, held: Held) -> None:
        self.counts.discarded += 1
        task = asyncio.get_running_loop().create_task(self._end_one(held))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_one(self, held: Held) -> None:
        await self._end(held)

    async def settled(self) -> None:
        """Until no refill is due or under way."""
        if self._due is not None:
            self._due.cancel()
            self._start_refilling()
        if self._refilling is not None:
            await asyncio.wait({self._refilling})

    async def close(self) -> None:
        """End every idle sandbox and wait until it is gone."""
        self._closed = True
        for timer in (self._due, self._aging):
            if timer is not None:
                timer.cancel()
        if self._refilling is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._refilling
        for queue in self._ready.values():
            while queue:
                self._discard(queue.popleft()[1])
        if self._mounts is not None:
            self._mounts.close()
        while self._ending:
            await asyncio.gather(*self._ending)
