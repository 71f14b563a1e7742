"""The commands a conversation has asked for since the last event, and the timers it has running.

Rules: a timer is started and stopped once each, so the server never hears of one twice.

Not here: what to ask for (egress/conversation).
"""

from __future__ import annotations

from palyra.egress.events import Command, Ruled, Ruling, StartTimer, StopTimer, Timer
from palyra.egress.grammar import Target, show


class Outbox:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._running: set[Timer] = set()

    def take(self) -> tuple[Command, ...]:
        taken, self.commands = tuple(self.commands), []
        return taken

    def put(self, *commands: Command) -> None:
        self.commands += commands

    def rule(self, target: Target | None, ruling: Ruling, why: str, grants: tuple[str, ...] = ()) -> None:
        host, port = (target.host, target.port) if target else ("", 0)
        self.put(Ruled(host=host, port=port, ruling=ruling, why=show(why), grants=grants))

    def start(self, timer: Timer) -> None:
        if timer not in self._running:
            self._running.add(timer)
            self.put(StartTimer(timer))

    def stop(self, *timers: Timer) -> None:
        for timer in timers:
            if timer in self._running:
                self._running.discard(timer)
                self.put(StopTimer(timer))

    def rang(self, timer: Timer) -> None:
        self._running.discard(timer)
