"""The Executor protocol, and the two ends of a program's streams that a caller gives it.

The engine holds the same shapes as its own ports; `wiring` joins them. Not here: any executor (process).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from palyra.errors import Reason
from palyra.model.face import Listener
from palyra.model.outcome import Connection, Execution, Status, StreamName
from palyra.model.plan import ProcessPlan
from palyra.model.reasons import SHORTAGES

if TYPE_CHECKING:
    from palyra.egress.credentials import Credential

CHUNK = 4096
"""The most bytes a sink is given at once."""


class Sink(Protocol):
    def feed(self, stream: StreamName, chunk: bytes) -> None: ...
    def reached(self, connections: Sequence[Connection]) -> None:
        """Once at the end, also of a call that was cancelled, where hosts were granted: what it reached and tried."""


Room: TypeAlias = "Callable[[StreamName], asyncio.Future[None] | None]"
"""`room` of a sink that cannot always take more, because its reader may be slow or not read at all: done when more of
this stream may come; None when it may come now. A sink without it takes everything."""


WhileRunning: TypeAlias = "Callable[[], None]"
"""`while_running` of a sink that has work of its own to do while a program runs: called once, on the loop, when the
program has begun and no other runs for this process. What it raises ends the call as a broken sink does. A sink need
not have it, and where several programs run it is not called."""

WhileEnding: TypeAlias = "Callable[[], None]"
"""`while_ending` of a sink that has work of its own to do while the kernel takes a sandbox apart: called once, on the
loop, when the program has ended by itself and everything else was sent its end. Output may still come, and how the
program ended is not known yet. What it raises ends the call as a broken sink does. A sink need not have it."""


class Source(Protocol):
    async def read(self) -> bytes:
        """The next bytes of the caller's stdin; b"" at the end."""


class Serving(Protocol):
    def finish(self) -> tuple[Connection, ...]:
        """Close every socket; what came of each connection."""


class Egress(Protocol):
    """Answers on the listeners of a sandbox's network (egress/server)."""

    def serve(
        self, plan: ProcessPlan, listeners: Sequence[Listener], credentials: Sequence[Credential] = ()
    ) -> Serving:
        """Takes the listeners over, whatever comes of it."""


class Executor(Protocol):
    async def run(
        self,
        plan: ProcessPlan,
        sink: Sink,
        source: Source | None = None,
        *,
        credentials: Sequence[Credential] = (),
        policy_number: int | None = None,
    ) -> Execution:
        """Run the plan to its end. Cancelling kills the whole tree before this returns. `credentials` never come near
        the program: they are added to its requests outside the sandbox."""


class LaunchFailed(Exception):
    """Nothing of the plan's program ran; the sentence says what the launcher or the kernel said."""

    hint: str | None = None
    """What the caller can do about it, where that is known."""


class WorkspaceMoved(LaunchFailed):
    """What was to be closed or shown is not there any more, or is something else: another call, or a person, was
    faster. Looked at again it may be in order; what was planned for the old state is never run."""

    hint = "Another program changed the workspace meanwhile, and nothing ran: send the call again."

    def __init__(self, changed: str) -> None:
        super().__init__(f"The workspace changed while the sandbox was being made: {changed}.")


def not_started(error: LaunchFailed | OSError) -> Execution:
    """What becomes of a call whose sandbox could not be started."""
    cause = error if isinstance(error, OSError) else error.__cause__
    hint = SHORTAGES.get(cause.errno or 0) if isinstance(cause, OSError) else None
    if isinstance(error, LaunchFailed):
        hint = hint or error.hint
    return Execution(status=Status.FAILED, reason=Reason.SPAWN_FAILED, message=str(error), hint=hint)
