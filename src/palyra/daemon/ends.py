"""What follows the end of every call: a line in the log, numbers for /metrics, and its note among the taken calls gone.

The log line is JSON on one line, for machines: who, what and how it ended; no input, no output, no secret.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import field

import orjson

from palyra.daemon.live import LiveCall
from palyra.errors import StateError
from palyra.model.outcome import Outcome
from palyra.values import dataclass
from palyra.wiring.taken import TakenCalls

log = logging.getLogger("palyra.calls")
Watcher = Callable[[LiveCall, Outcome], None]


@dataclass(slots=True, kw_only=True)
class CallEnds:
    taken: TakenCalls
    now_unix_ms: Callable[[], int]
    watchers: list[Watcher] = field(default_factory=list)
    """Whoever else wants to know: metrics, the console's events."""
    _noted: dict[str, str] = field(default_factory=dict)
    """Calls that were taken on here, by id: whose each is. Another's call that borrows the id must not end the note."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def was_taken(self, call_id: str, *, principal: str) -> None:
        self._noted[call_id] = principal

    def note(self, call: LiveCall, outcome: Outcome) -> None:
        if log.isEnabledFor(logging.INFO):  # with --quiet nobody reads the line
            log.info("%s", call_line(call, outcome, at_unix_ms=self.now_unix_ms()))
        for watcher in self.watchers:
            watcher(call, outcome)
        if self._noted.get(call.call_id) == call.principal:
            del self._noted[call.call_id]
            task = asyncio.ensure_future(self._forget(call.call_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forget(self, call_id: str) -> None:
        try:
            await self.taken.forget(call_id)
        except StateError as error:
            logging.getLogger("palyra.daemon").warning("call %s stays marked as accepted: %s", call_id, error.detail)

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)


def call_line(call: LiveCall, outcome: Outcome, *, at_unix_ms: int) -> str:
    line = {
        "at_unix_ms": at_unix_ms,
        "event": "call",
        "call_id": outcome.call_id,
        "run_id": outcome.run_id,
        "principal": call.principal,
        "door": call.request.run.context.door.value,
        "tool": outcome.tool,
        "status": outcome.status.value,
        "success": outcome.success,
        "reason": outcome.reason.value if outcome.reason else None,
        "wall_us": outcome.usage.wall_us,
        "receipt": outcome.receipt["index"] if outcome.receipt else None,
    }
    return orjson.dumps(line).decode()
