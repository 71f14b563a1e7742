"""Joins background processes to the database and the journal: their records, and the engine's port.

A start's row is durable before its program begins, in one transaction with its entry, `process.started`; so is an end
with `process.ended`. Rows and logs are read straight from the home, so looking at a process needs no keeper; starting
and stopping go to whoever keeps them. A row that says `running` though its keeper is gone is ended as `lost` by whoever
sees it first, at every opening of the home and at every look, and what is left of it is killed.

A row is unsigned: whoever can write the database would have Palyra kill any process of its user, or of anybody where it
is root. What is killed is therefore what the signed entry of the start names (wiring/lost_processes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from palyra.budget.store import BudgetStore
from palyra.engine.ports import Clock, Owners
from palyra.errors import Reason, Rejected
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.launch import store
from palyra.launch.keeper_client import KeeperClient
from palyra.model.budget import NOTHING, Spending
from palyra.model.call import is_ulid
from palyra.model.outcome import Connection, StreamName
from palyra.model.process import (
    BackgroundProcess,
    Lifetime,
    LogPage,
    NotStarted,
    ProcessOwner,
    ProcessStatus,
    StartOrder,
)
from palyra.model.record import EntryDraft
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

KEEPER = "palyra.wiring.keeper"
"""The module whose `main` is a keeper; named, not imported: only the keeper's own process needs it."""


class Keeping(Protocol):
    """Whoever has the processes: the keeper at the other end of a socket, or a supervisor in this process."""

    async def start(self, order: StartOrder) -> BackgroundProcess: ...
    async def stop(self, process_id: str, *, by: str) -> None: ...
    async def end_run(self, owner: ProcessOwner, *, by: str) -> None: ...
    def let_go(self) -> None:
        """This process is done with it; what is kept stays kept."""


def keeper_of(home: Path, config_file: Path | None) -> KeeperClient:
    """The line to a home's keeper; nothing is started before it is needed."""
    source = str(config_file.absolute()) if config_file is not None else ""
    return KeeperClient(home, module=KEEPER, arguments=(str(home), source))


class ProcessRecords:
    """What a supervisor needs kept; fits `launch.background.Records`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def started(self, process: BackgroundProcess) -> None:
        await self._writer.commit(lambda tx: _start(tx, process))

    async def ended(
        self, process: BackgroundProcess, redactions: Mapping[str, int], connections: Sequence[Connection] = ()
    ) -> None:
        await self._writer.commit_closing(lambda tx: _end(tx, process, redactions, connections))


def _start(tx: Transaction, process: BackgroundProcess) -> None:
    from palyra.journal.process_standing import start_details  # a keeper's alone

    store.insert_process(tx, process)
    act = Act(
        kind=ActKind.PROCESS_STARTED,
        actor=process.owner.principal,
        subject=f"process/{process.process_id}",
        run_id=process.owner.run_id,
        details=start_details(process),
    )
    record_act(tx, act, at_unix_ms=process.started_unix_ms)


def _end(
    tx: Transaction,
    process: BackgroundProcess,
    redactions: Mapping[str, int],
    connections: Sequence[Connection] = (),
) -> None:
    if store.end_process(tx, process):
        assert process.ended_unix_ms is not None
        spent = BudgetStore().settle_process(tx, process.owner.run_id, process.call_id, process.usage)
        tx.append(ended_draft(process, redactions, connections, spent), at_unix_ms=process.ended_unix_ms)


def _egress(connections: Sequence[Connection]) -> dict[str, int]:
    """What it reached and tried, in numbers; as in a call's own entry, no host is named."""
    allowed = sum(one.verdict == "allowed" for one in connections)
    return {
        "allowed": allowed,
        "denied": len(connections) - allowed,
        "bytes_up": sum(one.bytes_up for one in connections),
        "bytes_down": sum(one.bytes_down for one in connections),
    }


def ended_draft(
    process: BackgroundProcess,
    redactions: Mapping[str, int],
    connections: Sequence[Connection] = (),
    spent: Spending = NOTHING,
) -> EntryDraft:
    """The journal's entry: how it ended and what it used; nothing it was given and nothing it said."""
    from palyra.journal.process_standing import named

    return Act(
        kind=ActKind.PROCESS_ENDED,
        actor=PALYRA,
        subject=f"process/{process.process_id}",
        run_id=process.owner.run_id,
        details={
            **named(process),
            "status": process.status.value,
            "exit_code": process.exit_code,
            "signal": process.signal,
            "reason": process.reason.value if process.reason else None,
            "stopped_by": process.stopped_by,
            "started_unix_ms": process.started_unix_ms,
            "usage": process.usage.as_json() if process.usage else None,
            "output": {"stdout_bytes": process.stdout_bytes, "stderr_bytes": process.stderr_bytes},
            "redactions": dict(redactions),
            "protected_created": len(process.protected_created),
            "spent": spent.as_json(),
            **({"egress": _egress(connections)} if connections else {}),
        },
    ).draft()


class KeptProcesses:
    """The engine's `Background` port over one home."""

    def __init__(
        self,
        *,
        writer: Writer,
        keeping: Keeping,
        logs: Path,
        owners: Owners,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._records = ProcessRecords(writer)
        self._keeping = keeping
        self._logs = logs
        self._owners = owners
        self._clock = clock

    # ── the port ──

    async def start(self, order: StartOrder) -> BackgroundProcess:
        return await self._keeping.start(order)

    async def status(self, owner: ProcessOwner, process_id: str) -> BackgroundProcess:
        process = await self.find(process_id)
        if process is None or process.owner != owner:  # one answer for both: a handle of others must not even exist
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                "This run has no such background process.",
                "palyra.process.list shows those it has.",
            )
        return process

    async def list(self, owner: ProcessOwner, *, before: str | None, count: int) -> Sequence[BackgroundProcess]:
        await self.recover()
        return store.processes_of(self._writer, owner, before=before or store.LAST, count=count)

    async def output(
        self, owner: ProcessOwner, process_id: str, *, offset_bytes: int, max_bytes: int, stream: StreamName | None
    ) -> tuple[BackgroundProcess, LogPage]:
        process = await self.status(owner, process_id)
        return process, self.read(process, offset_bytes=offset_bytes, max_bytes=max_bytes, stream=stream)

    async def stop(self, owner: ProcessOwner, process_id: str, *, by: str) -> BackgroundProcess:
        process = await self.status(owner, process_id)
        if not process.is_running:
            return process
        try:
            await self._keeping.stop(process_id, by=by)
        except NotStarted:  # its keeper died meanwhile: looking again ends what is left
            await self.recover()
        process = await self.status(owner, process_id)
        if process.is_running:
            raise Rejected(Reason.BUSY, "The process did not end in time.", "Try again in a moment.")
        return process

    async def end_run(self, owner: ProcessOwner) -> None:
        await self.recover()
        running = store.running_processes(self._writer)
        if any(process.owner == owner and process.lifetime is Lifetime.RUN_OWNED for process in running):
            await self._keeping.end_run(owner, by="run")

    # ── for operators: whoever can open the home ──

    async def find(self, process_id: str) -> BackgroundProcess | None:
        """Any process of this home. Whoever shows it to an agent must check its owner first."""
        if not is_ulid(process_id):
            return None
        process = store.find_process(self._writer, process_id)
        if process is not None and process.is_running and not self._owners.is_alive(process.keeper):
            await self.recover()
            process = store.find_process(self._writer, process_id)
        return process

    async def everything(self, *, before: str | None = None, count: int = 50) -> Sequence[BackgroundProcess]:
        await self.recover()
        return store.all_processes(self._writer, before=before or store.LAST, count=count)

    async def running(self) -> Sequence[BackgroundProcess]:
        await self.recover()
        return store.running_processes(self._writer)

    def read(
        self, process: BackgroundProcess, *, offset_bytes: int, max_bytes: int, stream: StreamName | None = None
    ) -> LogPage:
        from palyra.launch.ringlog import read_log

        try:
            return read_log(
                self._logs / process.process_id,
                offset=offset_bytes,
                max_bytes=max_bytes,
                stream=stream,
                growing=process.is_running,
            )
        except ValueError as error:
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"offset_bytes {offset_bytes} is past the end: {error}.",
                "Start at 0 and continue with next_offset_bytes.",
            ) from error

    def close(self) -> None:
        self._keeping.let_go()

    # ── after a crash ──

    async def recover(self) -> int:
        """End every process whose keeper is gone; returns how many there were."""
        running = store.running_processes(self._writer)
        gone = [process for process in running if not self._owners.is_alive(process.keeper)]
        if not gone:
            return 0
        from palyra.wiring.lost_processes import lost_processes

        lost = lost_processes(self._writer, gone)
        for process, is_proven in lost:
            if is_proven and process.keeper.boot_id == self._owners.me().boot_id:
                from palyra.launch.survivors import kill_survivor

                await kill_survivor(process.pid, process.start_ticks, process.cgroups)
            ended = replace(process, status=ProcessStatus.LOST, ended_unix_ms=self._clock.now_unix_ms())
            await self._records.ended(ended, {})
        return len(lost)
