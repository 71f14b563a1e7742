"""Output as it comes, given to the embedder's own code: what that raises ends the call, and is raised to its caller.

The engine would take it for a failure of Palyra's and record it as one (INTERNAL). So the call is cancelled, its record
closed as CANCELLED, and only then the error goes on; from there on nothing more is given to code that failed.

Not here: what the output is (engine/output).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from palyra.engine.output import OnOutput
from palyra.engine.trip import CallRequest
from palyra.model.outcome import Outcome, StreamName

Call = Callable[[CallRequest], Coroutine[Any, Any, Outcome]]


async def heard(call: Call, request: CallRequest, on_output: OnOutput) -> Outcome:
    failed: list[Exception] = []
    loop, waiting = asyncio.get_running_loop(), asyncio.current_task()

    def tell(stream: StreamName, chunk: bytes) -> None:
        if failed:
            return
        try:
            on_output(stream, chunk)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the caller's
            failed.append(error)
            # A task of its own: to cancel the caller's would reach whatever it awaits next.
            loop.call_soon_threadsafe(work.cancel)

    work = asyncio.create_task(call(replace(request, on_output=tell)))
    try:
        outcome = await work
    except asyncio.CancelledError:
        if not failed or (waiting is not None and waiting.cancelling()):
            raise
        raise failed[0] from None
    if failed:
        raise failed[0]
    return outcome
