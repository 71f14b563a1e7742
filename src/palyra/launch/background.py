"""Children that outlive a call, supervised: started held, recorded, told, logged, ended, recorded again.

Order of a start: 1 room for one more · 2 a held sandbox, in which nothing foreign has run · 3 its row, durable, with
pid and start time · 4 the message that makes it the program · 5 the answer, once the program has begun.

Rules: the deadline is the plan's own wall time; a stop is SIGTERM, a grace, SIGKILL by pidfd, and the executor ends the
rest of the tree; output is redacted before it is written and never read back here; every end is recorded once. A
process owned by a run also ends when the process that holds the run does.

Not here: sockets (keeper), rows (store), what may be started at all (engine). The daemon hosts the same class.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from palyra.errors import Reason, Rejected, StateError
from palyra.launch.ending import end
from palyra.launch.executor import LaunchFailed, Sink, not_started
from palyra.launch.held import Held, start_held, template_of
from palyra.launch.jobs import Jobs
from palyra.launch.kept import Kept, LogSink, ended_by_itself, ended_process
from palyra.launch.ringlog import RingLog, prune_logs
from palyra.launch.survivors import command_line, open_exactly, start_ticks
from palyra.launch.waiting import readable, unbroken
from palyra.model.host import HostFacts
from palyra.model.outcome import Connection, Execution, Status
from palyra.model.plan import ProcessPlan, plan_digest
from palyra.model.process import (
    BackgroundProcess,
    Lifetime,
    NotStarted,
    ProcessOwner,
    StartOrder,
    started_process,
)
from palyra.model.record import Owner
from palyra.redact.values import redact_json

log = logging.getLogger("palyra.background")

GRACE_S = 2.0
"""Between SIGTERM and SIGKILL of a stop."""
MAX_KEPT = 128
"""Of one home, whatever the runs: each costs a few descriptors and up to 1 MiB of log."""
MAX_EACH = MAX_KEPT * 3 // 4
"""Of one principal, in however many runs: it must not keep everybody else from starting one."""
_STARTS_AT_ONCE = 4
_BEGIN_TIMEOUT_S = 5.0
_STEP_S = 0.002


class Records(Protocol):
    """Where starts and ends are kept; each returns when it is durable, or raises StateError."""

    async def started(self, process: BackgroundProcess) -> None: ...
    async def ended(
        self, process: BackgroundProcess, redactions: Mapping[str, int], connections: Sequence[Connection] = ()
    ) -> None: ...


class HeldExecutor(Protocol):
    async def run_held(self, held: Held, plan: ProcessPlan, sink: Sink) -> Execution: ...


class Supervisor:
    def __init__(
        self,
        *,
        executor: HeldExecutor,
        host: HostFacts,
        records: Records,
        logs: Path,
        me: Owner,
        now_unix_ms: Callable[[], int],
        appeared: Callable[[StartOrder], tuple[str, ...]] = lambda _: (),
    ) -> None:
        """`appeared`: guarded names in a process's workspace that were not there when it started."""
        self._executor = executor
        self._host = host
        self._records = records
        self._logs = logs
        self._me = me
        self._now_unix_ms = now_unix_ms
        self._appeared = appeared
        self._kept: dict[str, Kept] = {}
        self._holders: dict[Owner, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._jobs = Jobs()
        self._starts = asyncio.Semaphore(_STARTS_AT_ONCE)
        self._closed = False
        self.failure: StateError | None = None
        """Why an end could not be recorded: no other process is taken, and when the last has ended it is time to go."""

    @property
    def kept(self) -> int:
        """How many run, start or end right now."""
        return len(self._kept)

    # ── start ──

    async def start(self, order: StartOrder) -> BackgroundProcess:
        """Raises NotStarted, Rejected(BUSY) or StateError; in each case nothing of the program goes on."""
        kept = self._admit(order)  # 1
        try:
            async with self._starts:
                held = await self._hold(order.plan)  # 2
            await self._record(kept, held)  # 3
        except BaseException:
            self._forget(kept)
            raise
        before = command_line(held.program)
        task = asyncio.create_task(self._keep_to_its_end(kept, held))  # 4
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        kept.ready.set()
        await self._begun(kept, held.program, before)  # 5
        assert kept.process is not None
        if kept.failure:
            raise NotStarted(kept.failure)
        return kept.process

    def _admit(self, order: StartOrder) -> Kept:
        if self._closed:
            raise NotStarted("This keeper is ending.", "Try again.")
        if plan_digest(order.plan) != order.plan_sha256:
            raise NotStarted("The plan received is not the one that was decided on.")
        if order.process_id in self._kept:
            raise NotStarted(f"A process {order.process_id} already exists.")
        self._check_room(order)
        self._watch_holder(order)
        kept = self._kept[order.process_id] = Kept(order)
        return kept

    def _check_room(self, order: StartOrder) -> None:
        running = sum(kept.order.owner == order.owner for kept in self._kept.values())
        mine = sum(kept.order.owner.principal == order.owner.principal for kept in self._kept.values())
        if running >= order.max_running:
            raise Rejected(
                Reason.BUSY,
                f"This run has {running} background process{'es' if running > 1 else ''} already running.",
                "Stop one with palyra.process.stop, or raise max_background_per_run in [tool_call.process_runner].",
            )
        if len(self._kept) >= MAX_KEPT or mine >= MAX_EACH:
            whose = "of this principal" if mine >= MAX_EACH else "in this home"
            raise Rejected(
                Reason.BUSY,
                f"{mine if mine >= MAX_EACH else MAX_KEPT} background processes {whose} are already running.",
                "Stop one with palyra.process.stop.",
            )

    async def _hold(self, plan: ProcessPlan) -> Held:
        try:
            return await start_held(
                template_of(plan),
                shell=self._host.shell,
                name=os.urandom(16).hex(),
                jobs=self._jobs,
                abandon=self._abandon,
                keeps_usage=self._host.subreaper,
            )
        except LaunchFailed as error:
            raise NotStarted(str(error), not_started(error).hint) from error

    async def _record(self, kept: Kept, held: Held) -> None:
        kept.held = held
        kept.process = started_process(
            kept.order,
            keeper=self._me,
            pid=held.program,
            start_ticks=start_ticks(held.program) or 0,
            cgroups=held.group.paths if held.group is not None else (),
            at_unix_ms=self._now_unix_ms(),
        )
        try:
            await self._records.started(kept.process)
        except BaseException:
            await self._abandon(held)
            raise

    async def _abandon(self, held: Held) -> None:
        await unbroken(end(held, subreaper=self._host.subreaper, program_ended=False))

    async def _begun(self, kept: Kept, pid: int, before: bytes) -> None:
        """Until the shell has become the program, or has said that it cannot."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + _BEGIN_TIMEOUT_S
        while not kept.over.is_set() and command_line(pid) in (before, b"") and clock() < deadline:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kept.over.wait(), _STEP_S)

    # ── while it runs ──

    async def _keep_to_its_end(self, kept: Kept, held: Held) -> None:
        """Whatever goes wrong, nobody waits for ever for its end, and no keeper stays for it."""
        try:
            await self._keep(kept, held)
        except Exception:
            log.exception("process %s could not be kept to its end", kept.order.process_id)
            self._closed, self.failure = True, StateError("A background process failed inside Palyra.")
        finally:
            self._forget(kept)

    async def _keep(self, kept: Kept, held: Held) -> None:
        order = kept.order
        try:
            sink = LogSink(RingLog(self._logs / order.process_id, principal=order.owner.principal), order.secrets)
        except OSError as error:
            await self._abandon(held)
            sentence = f"Its log could not be made: {error.strerror}."
            await self._finish(kept, Execution(status=Status.FAILED, reason=Reason.SPAWN_FAILED, message=sentence), {})
            return
        execution = await self._execute(held, order.plan, sink)
        sink.finish(is_whole=ended_by_itself(execution, stopped_by=kept.stopped_by))
        await self._finish(kept, execution, sink.redactions)

    async def _execute(self, held: Held, plan: ProcessPlan, sink: Sink) -> Execution:
        try:
            return await self._executor.run_held(held, plan, sink)
        except LaunchFailed as error:
            return not_started(error)
        except Exception:
            log.exception("a background process failed inside Palyra")
            return Execution(status=Status.FAILED, reason=Reason.INTERNAL)

    async def _finish(self, kept: Kept, execution: Execution, redactions: Mapping[str, int]) -> None:
        assert kept.process is not None
        if execution.reason is Reason.SPAWN_FAILED:
            kept.failure = execution.message or "The program could not be started."
        ended = ended_process(kept.process, execution, stopped_by=kept.stopped_by, at=self._now_unix_ms())
        # The program chose these names, and may have put a secret into them: they are told to who started it.
        appeared = redact_json(list(self._appeared(kept.order)), kept.order.secrets)
        kept.process = replace(ended, protected_created=tuple(appeared))
        try:
            await self._records.ended(kept.process, redactions, execution.connections)
        except StateError as error:
            log.critical("the end of process %s could not be recorded: %s", kept.order.process_id, error.detail)
            self._closed, self.failure = True, error  # whoever comes next finds the row, and that its keeper is gone
        finally:
            self._forget(kept)
            prune_logs(self._logs, keep=self._kept.keys())

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.order.process_id, None)
        kept.ready.set()
        kept.over.set()
        holder = kept.order.holder
        if holder is not None and not any(other.order.holder == holder for other in self._kept.values()):
            watch = self._holders.pop(holder, None)
            if watch is not None and watch is not asyncio.current_task():
                watch.cancel()

    # ── stop ──

    async def stop(self, process_id: str, *, by: str) -> None:
        """Returns when it is over and that is recorded; a process that is not kept here is over already."""
        kept = self._kept.get(process_id)
        if kept is not None:
            await self._stop([kept], by)

    async def end_run(self, owner: ProcessOwner, *, by: str) -> None:
        """Everything that belongs to a run and was to end with it."""
        await self._stop(self._owned(lambda order: order.owner == owner), by)

    def let_go(self) -> None:
        """Nothing to do: what is kept here is ours."""

    async def close(self, *, by: str) -> None:
        """Take no more, and end what there is."""
        self._closed = True
        await self._stop(list(self._kept.values()), by)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._jobs.close()

    def _owned(self, matches: Callable[[StartOrder], bool]) -> list[Kept]:
        owned = (kept for kept in self._kept.values() if kept.order.lifetime is Lifetime.RUN_OWNED)
        return [kept for kept in owned if matches(kept.order)]

    async def _stop(self, some: Iterable[Kept], by: str) -> None:
        await asyncio.gather(*(self._stop_one(kept, by) for kept in some))

    async def _stop_one(self, kept: Kept, by: str) -> None:
        await kept.ready.wait()
        kept.stopped_by = kept.stopped_by or by
        kept.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await kept.over.wait()
        kept.signal(signal.SIGKILL)
        await kept.over.wait()

    # ── the process that holds a run ──

    def _watch_holder(self, order: StartOrder) -> None:
        holder = order.holder
        if holder is None or holder in self._holders:
            return
        pidfd = open_exactly(holder.pid, holder.start_ticks) if holder.boot_id == self._me.boot_id else None
        if pidfd is None:
            raise NotStarted("The process that owned this run is gone.")
        self._holders[holder] = asyncio.create_task(self._until_gone(holder, pidfd))

    async def _until_gone(self, holder: Owner, pidfd: int) -> None:
        try:
            await readable(pidfd)
        finally:
            os.close(pidfd)
        await self._stop(self._owned(lambda order: order.holder == holder), "run")
