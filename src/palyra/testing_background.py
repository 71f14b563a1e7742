"""The fake of the engine's port for background processes. `palyra.testing` offers it with all the others."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from palyra.errors import Reason, Rejected
from palyra.model import process as kept
from palyra.model.outcome import StreamName
from palyra.model.record import Owner
from palyra.values import dataclass

STARTED_UNIX_MS = 1_700_000_000_000


@dataclass
class FakeBackground:
    """Processes that run until they are stopped; what they "write" is `text`. `failure` is raised by every start."""

    text: bytes = b""
    failure: Exception | None = None
    orders: list[kept.StartOrder] = field(default_factory=list)
    processes: dict[str, kept.BackgroundProcess] = field(default_factory=dict)

    async def start(self, order: kept.StartOrder) -> kept.BackgroundProcess:
        if self.failure is not None:
            raise self.failure
        running = [p for p in self.processes.values() if p.is_running and p.owner == order.owner]
        if len(running) >= order.max_running:
            raise Rejected(Reason.BUSY, f"{len(running)} background processes of this run are already running.")
        self.orders.append(order)
        born: dict[str, Any] = {"pid": 4000, "start_ticks": 1, "cgroups": (), "at_unix_ms": STARTED_UNIX_MS}
        process = kept.started_process(order, keeper=Owner("boot", 1, 1), **born)
        return self.processes.setdefault(order.process_id, process)

    async def status(self, owner: kept.ProcessOwner, process_id: str) -> kept.BackgroundProcess:
        process = self.processes.get(process_id)
        if process is None or process.owner != owner:
            raise Rejected(Reason.BAD_ARGUMENTS, "This run has no such background process.")
        return process

    async def list(self, owner: kept.ProcessOwner, *, before: str | None, count: int) -> list[kept.BackgroundProcess]:
        own = sorted((p.process_id for p in self.processes.values() if p.owner == owner), reverse=True)
        return [self.processes[name] for name in own if before is None or name < before][:count]

    async def output(
        self, owner: kept.ProcessOwner, process_id: str, *, offset_bytes: int, max_bytes: int, stream: StreamName | None
    ) -> tuple[kept.BackgroundProcess, kept.LogPage]:
        data = self.text[offset_bytes : offset_bytes + max_bytes]
        page = kept.LogPage(offset_bytes=offset_bytes, next_offset_bytes=offset_bytes + len(data), dropped_bytes=0,
                            total_bytes=len(self.text), chunks=(kept.LogChunk(StreamName.STDOUT, data),))  # fmt: skip
        return await self.status(owner, process_id), page

    async def stop(self, owner: kept.ProcessOwner, process_id: str, *, by: str) -> kept.BackgroundProcess:
        process = await self.status(owner, process_id)
        if process.is_running:
            process = replace(process, status=kept.ProcessStatus.STOPPED, stopped_by=by, signal=15)
        self.processes[process_id] = process
        return process

    async def end_run(self, owner: kept.ProcessOwner) -> None:
        for process in await self.list(owner, before=None, count=len(self.processes)):
            if process.lifetime is kept.Lifetime.RUN_OWNED:
                await self.stop(owner, process.process_id, by="run")
