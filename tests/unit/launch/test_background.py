"""The supervisor without any sandbox: what it admits, records, and does when something fails."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import Reason, Rejected, StateError
from palyra.launch import background, kept
from palyra.launch.background import Supervisor
from palyra.launch.executor import LaunchFailed
from palyra.launch.held import Held
from palyra.launch.kept import ended_process
from palyra.launch.ringlog import read_log
from palyra.launch.survivors import start_ticks
from palyra.model.outcome import Execution, Status, StreamName, Usage
from palyra.model.process import BackgroundProcess, Lifetime, NotStarted, ProcessOwner, ProcessStatus
from palyra.model.record import Owner
from tests.journaling import ulid
from tests.promises import promise
from tests.unit.launch.orders import KEEPER, make_order, make_process
from tests.unit.sandbox.jobs import make_host

DONE = Execution(status=Status.COMPLETED, exit_code=0, usage=Usage(wall_us=5, cpu_us=3))


class Records:
    def __init__(self) -> None:
        self.kept: list[BackgroundProcess] = []
        self.redactions: list[Mapping[str, int]] = []
        self.down: set[str] = set()

    async def started(self, process: BackgroundProcess) -> None:
        if "start" in self.down:
            raise StateError("The disk is full.")
        self.kept.append(process)

    async def ended(self, process: BackgroundProcess, redactions: Mapping[str, int], connections: object = ()) -> None:
        if "end" in self.down:
            raise StateError("The disk is full.")
        self.kept.append(process)
        self.redactions.append(redactions)


class Stage:
    """Sandboxes that are none: a program "runs" until it is signalled or told to end."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = Records()
        self.abandoned = 0
        self.signals: list[int] = []
        self.deaf: set[int] = set()
        self.over = asyncio.Event()
        self.output: tuple[tuple[StreamName, bytes], ...] = ()
        self.failure: Exception | None = None
        self.told = 0
        monkeypatch.setattr(background, "start_held", self._hold)
        monkeypatch.setattr(background, "end", self._end)
        monkeypatch.setattr(background, "command_line", lambda pid: b"%d" % self.told)
        monkeypatch.setattr(background, "GRACE_S", 0.05)
        monkeypatch.setattr(kept, "ask_to_end", lambda held: self._signal(signal.SIGTERM))
        monkeypatch.setattr(kept._os, "send_signal", lambda fd, number: self._signal(number))
        self.supervisor = Supervisor(
            executor=self, host=make_host(), records=self.records, logs=folder, me=KEEPER, now_unix_ms=lambda: 1_000
        )

    async def _hold(self, template: Any, **options: Any) -> Held:
        if isinstance(self.failure, LaunchFailed):
            raise self.failure
        held = Held()
        held.program, held.program_fd = os.getpid(), 999
        return held

    async def _end(self, held: Held, **options: Any) -> None:
        self.abandoned += 1

    def _signal(self, number: int) -> None:
        self.signals.append(number)
        if number not in self.deaf:
            self.over.set()

    async def run_held(self, held: Held, plan: Any, sink: Any) -> Execution:
        self.told += 1
        if self.failure is not None:
            raise self.failure
        for stream, data in self.output:
            sink.feed(stream, data)
        await self.over.wait()
        held.program_fd = -1
        return replace(DONE, signal=self.signals[-1], exit_code=None) if self.signals else DONE


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Any) -> Stage:
    async def whole() -> Stage:
        stage = Stage(tmp_path, monkeypatch)
        await story(stage)
        return stage

    return asyncio.run(whole())


async def settle(stage: Stage) -> None:
    stage.over.set()
    await stage.supervisor.close(by="keeper")


def test_a_start_is_recorded_before_the_program_is_told_and_its_end_after(tmp_path, monkeypatch):
    order = make_order()

    async def story(stage: Stage) -> None:
        started = await stage.supervisor.start(order)
        assert (started.pid, started.start_ticks) == (os.getpid(), start_ticks(os.getpid()))
        assert (stage.records.kept, stage.supervisor.kept) == ([started], 1)
        stage.over.set()
        while stage.supervisor.kept:
            await asyncio.sleep(0)

    stage = play(tmp_path, monkeypatch, story)
    first, last = stage.records.kept
    assert (first.status, last.status, last.exit_code, last.usage) == (
        ProcessStatus.RUNNING, ProcessStatus.EXITED, 0, DONE.usage,
    )  # fmt: skip


def test_without_its_record_nothing_is_told_to_run(tmp_path, monkeypatch):
    async def story(stage: Stage) -> None:
        stage.records.down.add("start")
        with pytest.raises(StateError):
            await stage.supervisor.start(make_order())
        assert (stage.told, stage.abandoned, stage.supervisor.kept) == (0, 1, 0)

    play(tmp_path, monkeypatch, story)


def test_a_keeper_that_cannot_record_an_end_takes_no_more(tmp_path, monkeypatch):
    async def story(stage: Stage) -> None:
        await stage.supervisor.start(make_order())
        stage.records.down.add("end")
        stage.over.set()
        while stage.supervisor.kept:
            await asyncio.sleep(0)
        with pytest.raises(NotStarted):
            await stage.supervisor.start(make_order())

    play(tmp_path, monkeypatch, story)


def test_an_end_that_fails_as_nobody_foresaw_keeps_nobody_waiting(tmp_path, monkeypatch, caplog):
    """It was kept for ever: no stop came back, and its keeper never left."""

    def broken(_: object) -> tuple[str, ...]:
        raise RuntimeError("as nobody foresaw")

    async def story(stage: Stage) -> None:
        started = await stage.supervisor.start(make_order())
        monkeypatch.setattr(stage.supervisor, "_appeared", broken)
        stopping = asyncio.create_task(stage.supervisor.stop(started.process_id, by="agent:demo"))
        await asyncio.sleep(0)
        stage.over.set()
        await asyncio.wait_for(stopping, 30)
        assert (stage.supervisor.kept, stage.supervisor.failure is not None) == (0, True)
        with pytest.raises(NotStarted):
            await stage.supervisor.start(make_order())

    play(tmp_path, monkeypatch, story)
    assert "could not be kept to its end" in caplog.text


def test_a_plan_that_is_not_the_one_decided_on_is_not_started(tmp_path, monkeypatch):
    async def story(stage: Stage) -> None:
        order = make_order()
        for changed in (
            replace(order, plan=replace(order.plan, argv=("git", "push"))),
            replace(order, plan=replace(order.plan, lifetime="detached")),
            replace(order, plan_sha256="0" * 64),
        ):
            with pytest.raises(NotStarted, match="decided"):
                await stage.supervisor.start(changed)
        assert stage.told == 0

    play(tmp_path, monkeypatch, story)


def test_the_bound_holds_for_starts_at_once(tmp_path, monkeypatch):
    async def story(stage: Stage) -> None:
        starts = [stage.supervisor.start(make_order()) for _ in range(6)]
        results = await asyncio.gather(*starts, return_exceptions=True)
        refused = [result for result in results if isinstance(result, Rejected)]
        assert [refusal.reason for refusal in refused] == [Reason.BUSY] * 3
        await stage.supervisor.start(make_order(owner=ProcessOwner(ulid(5), "agent:demo")))
        monkeypatch.setattr(background, "MAX_KEPT", 4)
        with pytest.raises(Rejected, match="in this home"):
            await stage.supervisor.start(make_order(owner=ProcessOwner(ulid(6), "agent:demo")))
        await settle(stage)

    play(tmp_path, monkeypatch, story)


@promise("daemon.reserved-capacity")
def test_a_principal_does_not_keep_others_from_starting_with_however_many_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "MAX_EACH", 2)

    async def story(stage: Stage) -> None:
        for run in (ulid(5), ulid(6)):
            await stage.supervisor.start(make_order(owner=ProcessOwner(run, "agent:greedy")))
        with pytest.raises(Rejected, match="of this principal"):
            await stage.supervisor.start(make_order(owner=ProcessOwner(ulid(7), "agent:greedy")))
        await stage.supervisor.start(make_order(owner=ProcessOwner(ulid(8), "agent:modest")))
        await settle(stage)

    play(tmp_path, monkeypatch, story)


@pytest.mark.parametrize(("deaf", "sent"), [(set(), [15]), ({15}, [15, 9])])
def test_a_stop_asks_first_and_kills_what_does_not_listen(tmp_path, monkeypatch, deaf, sent):
    async def story(stage: Stage) -> None:
        stage.deaf = deaf
        started = await stage.supervisor.start(make_order())
        await stage.supervisor.stop(started.process_id, by="agent:demo")
        await stage.supervisor.stop(started.process_id, by="somebody later")

    stage = play(tmp_path, monkeypatch, story)
    assert (stage.signals, stage.records.kept[-1].stopped_by) == (sent, "agent:demo")
    assert stage.records.kept[-1].status is ProcessStatus.STOPPED


def test_the_end_of_a_run_ends_what_it_owns_and_nothing_else(tmp_path, monkeypatch):
    async def story(stage: Stage) -> None:
        owner = ProcessOwner(ulid(1), "agent:demo")
        await stage.supervisor.start(make_order(lifetime=Lifetime.DETACHED))
        await stage.supervisor.start(make_order(lifetime=Lifetime.RUN_OWNED, owner=ProcessOwner(ulid(8), "agent:demo")))
        await stage.supervisor.end_run(owner, by="run")
        assert stage.signals == []
        owned = await stage.supervisor.start(make_order(lifetime=Lifetime.RUN_OWNED))
        await stage.supervisor.end_run(owner, by="run")
        assert owned.process_id in {process.process_id for process in stage.records.kept if process.stopped_by == "run"}
        await settle(stage)

    play(tmp_path, monkeypatch, story)


def test_what_a_run_owns_ends_with_the_process_that_holds_the_run(tmp_path, monkeypatch):
    with subprocess.Popen(["/bin/sleep", "30"]) as holder:
        me = Owner(KEEPER.boot_id, holder.pid, start_ticks(holder.pid) or 0)

        async def story(stage: Stage) -> None:
            await stage.supervisor.start(make_order(lifetime=Lifetime.RUN_OWNED, holder=me))
            holder.kill()
            await asyncio.wait_for(stage.over.wait(), 10)
            while stage.supervisor.kept:
                await asyncio.sleep(0)
            holder.wait()
            with pytest.raises(NotStarted, match="gone"):
                await stage.supervisor.start(make_order(lifetime=Lifetime.RUN_OWNED, holder=me))

        stage = play(tmp_path, monkeypatch, story)
    assert stage.records.kept[-1].stopped_by == "run"


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_a_holder_that_only_has_the_number_is_not_the_holder(tmp_path, monkeypatch, change):
    async def story(stage: Stage) -> None:
        me = replace(Owner(KEEPER.boot_id, os.getpid(), start_ticks(os.getpid()) or 0), **change)
        with pytest.raises(NotStarted, match="gone"):
            await stage.supervisor.start(make_order(lifetime=Lifetime.RUN_OWNED, holder=me))

    play(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("failure", [LaunchFailed("No such file."), RuntimeError("a bug")])
def test_what_cannot_be_launched_is_not_kept(tmp_path, monkeypatch, failure, caplog):
    async def story(stage: Stage) -> None:
        stage.failure = failure
        if isinstance(failure, LaunchFailed):
            with pytest.raises(NotStarted, match="No such file"):
                await stage.supervisor.start(make_order())
        else:
            await stage.supervisor.start(make_order())
            await stage.supervisor.close(by="keeper")
            assert stage.records.kept[-1].reason is Reason.INTERNAL
        assert stage.supervisor.kept == 0

    play(tmp_path, monkeypatch, story)


def test_output_is_redacted_across_chunks_before_it_is_written(tmp_path, monkeypatch):
    order = make_order(secrets=(("vault-pin", b"hunter22"),))

    async def story(stage: Stage) -> None:
        stage.output = (
            (StreamName.STDOUT, b"pin hunt"),
            (StreamName.STDERR, b"hunter22"),
            (StreamName.STDOUT, b"er22."),
        )
        await stage.supervisor.start(order)
        await settle(stage)

    stage = play(tmp_path, monkeypatch, story)
    page = read_log(tmp_path / order.process_id, offset=0, max_bytes=999)
    written = b"".join(chunk.data for chunk in page.chunks)
    assert b"hunter" not in written
    assert written.count(b"[redacted:vault-pin:1]") == 2
    assert stage.records.redactions == [{"vault-pin": 2}]


@pytest.mark.parametrize(
    ("execution", "stopped_by", "status", "reason"),
    [
        (DONE, None, ProcessStatus.EXITED, None),
        (replace(DONE, status=Status.TIMEOUT, reason=Reason.TIMEOUT), None, ProcessStatus.EXPIRED, None),
        (replace(DONE, status=Status.TIMEOUT, reason=Reason.TIMEOUT), "run", ProcessStatus.STOPPED, None),
        (replace(DONE, reason=Reason.CPU_LIMIT), None, ProcessStatus.EXITED, Reason.CPU_LIMIT),
        (
            replace(DONE, status=Status.QUOTA_EXCEEDED, reason=Reason.QUOTA_EXCEEDED),
            None, ProcessStatus.EXITED, Reason.QUOTA_EXCEEDED,
        ),
        (DONE, "agent:demo", ProcessStatus.STOPPED, None),
    ],
)  # fmt: skip
def test_how_an_execution_reads_as_the_end_of_a_process(execution, stopped_by, status, reason):
    ended = ended_process(make_process(), execution, stopped_by=stopped_by, at=7)
    assert (ended.status, ended.reason, ended.stopped_by, ended.ended_unix_ms) == (status, reason, stopped_by, 7)
