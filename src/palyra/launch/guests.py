"""The guests' workers: who serves which call, how many there are, and what becomes of a call whose worker died.

Rules: a worker serves one module in its life, so that a guest that broke out of wasmtime finds no other skill's call in
the process it owns; it runs one call at a time; the number of calls at once is bounded, and so is the number of idle
workers, the longest idle going first. A spare one, not yet told a module, is kept ready. A worker that dies fails the
one call it held with TRAPPED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from palyra.errors import Reason
from palyra.inside.wasm.guest import EndKind
from palyra.launch.executor import LaunchFailed
from palyra.launch.guest_worker import REASONS, Begin, GuestEnd, HostCall, ModuleRefused, Worker, WorkerLost
from palyra.launch.waiting import unbroken
from palyra.model.outcome import Execution, Status, Usage
from palyra.model.wasm import WasmPlan

Artefact = Callable[[str, bytes], Awaitable[bytes]]
"""A module, by its digest and bytes, as this installation compiled it."""

_STATUSES = {
    EndKind.RETURNED: Status.COMPLETED,
    EndKind.OUT_OF_FUEL: Status.OUT_OF_FUEL,
    EndKind.TIMEOUT: Status.TIMEOUT,
    EndKind.QUOTA: Status.QUOTA_EXCEEDED,
    EndKind.TRAPPED: Status.TRAPPED,
    EndKind.INVALID: Status.REFUSED,
}


class Guests:
    def __init__(self, begin: Begin, artefact: Artefact, *, at_once: int, spare: int = 1) -> None:
        self._begin = begin
        self._artefact = artefact
        self._room = asyncio.Semaphore(at_once)
        self._most_idle = at_once
        self._most_spare = spare
        self._idle: list[Worker] = []
        """The longest idle first."""
        self._spare: list[Worker] = []
        self._filling: asyncio.Task[None] | None = None
        self._closed = False
        self._running = 0

    async def run(self, plan: WasmPlan, module: bytes, host_call: HostCall) -> tuple[Execution, bytes | None]:
        """(how it ended, what the guest gave as its output). Cancelling kills the worker before it is raised."""
        clock = asyncio.get_running_loop().time
        async with self._room:
            began = clock()
            compiled = None
            try:
                worker = await self._worker_for(plan, module)
                compiled = worker.compiled_sha256
                end = await self._use(worker, plan, host_call)
            except LaunchFailed as error:
                end = GuestEnd(kind=EndKind.BROKEN, detail=str(error))
            except ModuleRefused as error:
                end = GuestEnd(kind=EndKind.INVALID, detail=str(error))
            except WorkerLost as error:
                end = GuestEnd(kind=EndKind.TRAPPED, detail=f"The guest's worker was lost: {error}.")
            wall_us = round((clock() - began) * 1_000_000)
            return execution(end, wall_us=wall_us, compiled_sha256=compiled), end.output

    async def close(self) -> None:
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            with suppress(asyncio.CancelledError):
                await self._filling
        idle, self._idle, spare, self._spare = self._idle, [], self._spare, []
        for worker in (*idle, *spare):
            await worker.end()

    async def _use(self, worker: Worker, plan: WasmPlan, host_call: HostCall) -> GuestEnd:
        try:
            self._running += 1
            return await worker.run(plan, host_call, alone=self._running == 1)
        finally:
            self._running -= 1
            if worker.usable and not self._closed:
                self._idle.append(worker)
                await self._trim()
            else:
                await unbroken(worker.end())
            self._refill()

    async def _worker_for(self, plan: WasmPlan, module: bytes) -> Worker:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index].module_sha256 == plan.module_sha256:
                return self._idle.pop(index)
        artefact = await self._artefact(plan.module_sha256, module)
        worker = self._spare.pop() if self._spare else await Worker.start(self._begin)
        try:
            await worker.load(plan, artefact)
        except BaseException:
            await unbroken(worker.end())
            raise
        return worker

    async def _trim(self) -> None:
        while len(self._idle) > self._most_idle:
            await unbroken(self._idle.pop(0).end())

    def _refill(self) -> None:
        if self._closed or len(self._spare) >= self._most_spare or (self._filling and not self._filling.done()):
            return
        self._filling = asyncio.ensure_future(self._fill())

    async def _fill(self) -> None:
        with suppress(LaunchFailed):  # the call that needs one will say why
            worker = await Worker.start(self._begin)
            if self._closed:
                await worker.end()
            else:
                self._spare.append(worker)


def execution(end: GuestEnd, *, wall_us: int, compiled_sha256: str | None) -> Execution:
    reason: Reason | None = REASONS.get(end.kind)
    return Execution(
        status=_STATUSES.get(end.kind, Status.FAILED),
        reason=reason,
        message=end.detail or None,
        exit_code=end.exit_code,
        stdout_bytes=len(end.output or b""),
        usage=Usage(
            wall_us=wall_us,
            cpu_us=None,
            max_rss_bytes=end.memory_bytes,
            output_bytes=len(end.output or b""),
            fuel=end.fuel,
        ),
        compiled_sha256=compiled_sha256,
    )
