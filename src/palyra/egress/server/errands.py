"""What a line waits for besides its sockets: timers, a look-up, a connection. Each ends in one event for it.

Not here: what to wait for (egress/conversation), what happens to a line that is over meanwhile (line).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from palyra.egress import events as ev
from palyra.egress.events import Timer
from palyra.egress.hosts import Address

TIMERS_S = {Timer.HEAD: 15.0}


class Ways(Protocol):
    """How names are looked up and hosts reached. Both raise OSError whose words say why."""

    async def resolve(self, host: str) -> tuple[Address, ...]: ...
    async def connect(self, address: Address, port: int) -> socket.socket: ...


class Errands:
    def __init__(self, ways: Ways, tell: Callable[[ev.Event], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ways = ways
        self._tell = tell
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._work: set[asyncio.Task[None]] = set()

    def start(self, timer: Timer) -> None:
        self.stop(timer)
        self._timers[timer] = self._loop.call_later(TIMERS_S[timer], self._timed_out, timer)

    def stop(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def stop_timers(self) -> None:
        for timer in tuple(self._timers):
            self.stop(timer)

    def resolve(self, host: str) -> None:
        self._begin(self._resolved(host))

    def connect(self, address: Address, port: int, keep: Callable[[socket.socket], None]) -> None:
        """`keep` gets the socket before the event says that there is one."""
        self._begin(self._connected(address, port, keep))

    def give_up(self) -> None:
        self.stop_timers()
        for task in self._work:
            task.cancel()
        self._tell = _nobody  # else a line and its errands would hold each other until the collector comes

    def _timed_out(self, timer: Timer) -> None:
        self._timers.pop(timer, None)
        self._tell(ev.TimedOut(timer))

    def _begin(self, work: Awaitable[ev.Event]) -> None:
        task = self._loop.create_task(self._later(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _later(self, work: Awaitable[ev.Event]) -> None:
        self._tell(await work)

    async def _resolved(self, host: str) -> ev.Event:
        try:
            return ev.Resolved(await self._ways.resolve(host))
        except OSError as error:
            return ev.ResolveFailed(words(error))

    async def _connected(self, address: Address, port: int, keep: Callable[[socket.socket], None]) -> ev.Event:
        try:
            keep(await self._ways.connect(address, port))
        except OSError as error:
            return ev.UpstreamFailed(words(error))
        return ev.UpstreamOpened()


def _nobody(event: ev.Event) -> None:
    """The line is over."""


def words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
