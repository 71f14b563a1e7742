"""Whose turn it is: which calls of one run may go on together, by what they claim of its workspace.

Rules: calls that do not meet go on together; who meets somebody under way, or somebody who waits longer, waits, so no
call starves. Runs never wait for each other. The queue of a run is bounded: past it a call is refused with BUSY
instead of waiting for ever. A call announces itself before it is assessed and is told in its turn whether a writer of
its run ended since then: what it was assessed by may be gone (TOCTOU). Not here: what a call claims (engine/claims),
assessing it again (engine/since).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from palyra.engine.claims import NOTHING, Claim
from palyra.errors import Reason, Rejected

MAX_WAITING = 1024


class _Line:
    """The queue of one run: what is claimed now, and who waits, the longest first."""

    __slots__ = ("announced", "held", "waiting", "writers_ended")

    def __init__(self) -> None:
        self.announced = 0
        self.writers_ended = 0
        self.held: list[Claim] = []
        self.waiting: list[tuple[Claim, asyncio.Future[None]]] = []

    def may_enter(self, claim: Claim, before: int | None = None) -> bool:
        """Beside everybody under way, and past nobody of the first `before` who wait."""
        if not self.held and not self.waiting:
            return True
        if any(claim.conflicts(held) for held in self.held):
            return False
        return not any(claim.conflicts(waits) for waits, _ in self.waiting[:before])

    def leave(self, claim: Claim) -> None:
        self.held.remove(claim)
        self.writers_ended += bool(claim.writes)
        if self.waiting:
            self.admit()

    def give_up(self, claim: Claim, future: asyncio.Future[None]) -> None:
        if (claim, future) in self.waiting:  # `admit` drops a cancelled one itself, where several are at once
            self.waiting.remove((claim, future))
        self.admit()

    def admit(self) -> None:
        """Everybody who waits for nobody any more."""
        at = 0
        while at < len(self.waiting):
            waits, future = self.waiting[at]
            if future.done():
                del self.waiting[at]
            elif self.may_enter(waits, at):
                del self.waiting[at]
                self.held.append(waits)
                future.set_result(None)
            else:
                at += 1


class Turns:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @contextmanager
    def announce(self, run_id: str) -> Iterator[Callable[[], bool]]:
        """Yields a question: has a call of this run that writes ended since the announcement?"""
        line = self._line(run_id)
        line.announced += 1
        ended = line.writers_ended
        try:
            yield lambda: line.writers_ended != ended
        finally:
            line.announced -= 1
            self._drop_if_idle(run_id, line)

    def take(self, run_id: str, claim: Claim) -> Turn:
        return Turn(self, run_id, claim)

    def _line(self, run_id: str) -> _Line:
        line = self._lines.get(run_id)
        if line is None:
            line = self._lines[run_id] = _Line()
        return line

    async def enter(self, run_id: str, claim: Claim) -> bool:
        """Whether it had to wait."""
        line = self._line(run_id)
        try:
            return await self._wait(line, claim)
        finally:
            self._drop_if_idle(run_id, line)

    def leave(self, run_id: str, claim: Claim) -> None:
        line = self._lines[run_id]
        line.leave(claim)
        self._drop_if_idle(run_id, line)

    def _drop_if_idle(self, run_id: str, line: _Line) -> None:
        if not (line.held or line.waiting or line.announced):
            self._lines.pop(run_id, None)

    async def _wait(self, line: _Line, claim: Claim) -> bool:
        if line.may_enter(claim):
            line.held.append(claim)
            return False
        if len(line.waiting) >= MAX_WAITING:
            raise Rejected(
                Reason.BUSY,
                f"{MAX_WAITING} calls of this run are already waiting.",
                "Wait for some to finish, or use another run.",
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append((claim, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                line.leave(claim)  # the turn had just been given to us
            else:
                line.give_up(claim, future)
            raise
        return True


class Turn:
    """`async with`: from when it may go on until it has ended; whether it had to wait for that."""

    __slots__ = ("_claim", "_run_id", "_turns")

    def __init__(self, turns: Turns, run_id: str, claim: Claim) -> None:
        self._turns, self._run_id, self._claim = turns, run_id, claim

    async def __aenter__(self) -> bool:
        return self._claim is not NOTHING and await self._turns.enter(self._run_id, self._claim)

    async def __aexit__(self, *_: object) -> None:
        if self._claim is not NOTHING:
            self._turns.leave(self._run_id, self._claim)
