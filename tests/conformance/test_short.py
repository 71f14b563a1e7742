"""Programs that end before the loop turns are waited for in place: with the same promises as any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from palyra.errors import Reason
from palyra.launch import _os, course
from palyra.launch.ending import Ended
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.launch.waiting import has_ended
from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.sandbox.planner import plan_job
from palyra.sandbox.starter import assemble
from tests.conformance.arena import OWNERS, Arena, Kept, arena, claimed, host, marked_processes, require
from tests.promises import promise

pytestmark = pytest.mark.slow
SH = "/bin/sh"


@pytest.fixture(params=[(tier, owner) for tier in (Tier.B, Tier.C) for owner in OWNERS], ids=str)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    tier, owner = request.param
    require(tier)
    monkeypatch.setattr(course, "BRIEF_S", 5.0)  # on a busy machine too
    with arena(tier, owner) as made:
        yield made


def test_all_that_was_written_is_captured(place: Arena) -> None:
    size = 60_000  # less than a pipe holds, so that the program ends without a reader
    found = place.run(SH, "-c", f"head -c {size} /dev/zero; echo told >&2; exit 3")
    assert found.execution.status is Status.COMPLETED
    assert (found.execution.exit_code, found.execution.stdout_bytes, found.output.stderr) == (3, size, "told\n")
    assert found.output.stdout == "\0" * size


def test_more_than_a_pipe_holds_is_read_while_it_runs(place: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "BRIEF_S", 0.05)  # it waits for a reader meanwhile
    found = place.run(SH, "-c", "head -c 300000 /dev/zero")
    assert (found.execution.exit_code, found.execution.stdout_bytes) == (0, 300_000)


def test_the_quota_holds(place: Arena) -> None:
    limits = Limits(wall_ms=30_000, output_bytes=1000)
    found = place.run(SH, "-c", "head -c 50000 /dev/zero", limits=limits)
    assert (found.execution.status, found.execution.reason) == (Status.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED)
    assert len(found.output.stdout) == 1000


def test_a_signal_is_named(place: Arena) -> None:
    assert place.run(SH, "-c", "kill -9 $$").execution.signal == 9


def test_a_program_that_cannot_be_started_is_told_so(place: Arena) -> None:
    found = place.run("/usr/bin/no-such-program")
    assert (found.execution.status, found.execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)


@promise("tree-kill.before-answer")
def test_what_it_leaves_behind_is_gone_when_the_call_returns(place: Arena) -> None:
    mark = f"left-behind-{place.folder.name}"
    script = f"setsid {SH} -c 'sleep 100; : {mark}' >/dev/null 2>&1 & setsid {SH} -c 'sleep 100; : {mark}' & echo off"
    found = place.run(SH, "-c", script)
    assert found.output.stdout == "off\n"
    claimed(found, Guarantee.TREE_KILL)
    if not found.execution.degraded:
        assert marked_processes(mark) == []


class Busy(Kept):
    """Does something of its own while its sandbox is being taken apart."""

    asked = 0

    def while_ending(self) -> None:
        self.asked += 1


class Working(Kept):
    """Does something of its own while its program runs."""

    asked = 0

    def while_running(self) -> None:
        self.asked += 1


class BrokenAtWork(Kept):
    def while_running(self) -> None:
        raise ValueError("broken")


class Broken(Kept):
    def while_ending(self) -> None:
        raise ValueError("broken")


def test_who_takes_the_output_is_told_once_when_the_program_has_ended(place: Arena) -> None:
    plan = plan_job(place.job(SH, "-c", "echo done"), host())
    sink = Busy()
    execution = asyncio.run(ProcessExecutor(host()).run(plan, sink))
    assert (execution.exit_code, sink.stdout, sink.asked) == (0, "done\n", 1)


def test_who_takes_the_output_is_told_once_that_its_program_runs_alone(
    place: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "BRIEF_S", 0.001)

    async def story() -> tuple[list[int | None], list[str], list[int]]:
        made, sinks = ProcessExecutor(host()), [Working() for _ in range(4)]
        plan = plan_job(place.job(SH, "-c", "sleep 0.2; echo done"), host())
        first = await made.run(plan, sinks[0])
        rest = await asyncio.gather(*(made.run(plan, sink) for sink in sinks[1:]))
        await made.close()
        codes = [one.exit_code for one in (first, *rest)]
        return codes, [sink.stdout for sink in sinks], [sink.asked for sink in sinks]

    codes, said, asked = asyncio.run(story())
    assert (codes, said, asked[0]) == ([0] * 4, ["done\n"] * 4, 1)
    assert sum(asked[1:]) <= 1  # the first of them may have begun before the others came


def test_who_breaks_while_its_program_runs_leaves_nothing_behind(place: Arena) -> None:
    mark = f"left-behind-{place.folder.name}"
    plan = plan_job(place.job(SH, "-c", f"{SH} -c 'sleep 100; : {mark}' & sleep 100"), host())
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(ProcessExecutor(host()).run(plan, BrokenAtWork()))
    assert marked_processes(mark) == []


def test_a_program_that_is_killed_has_not_ended_by_itself(place: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "BRIEF_S", 0.0)
    plan = plan_job(place.job(SH, "-c", "cat /dev/zero", limits=Limits(wall_ms=30_000, output_bytes=1000)), host())
    sink = Busy()
    execution = asyncio.run(ProcessExecutor(host()).run(plan, sink))
    assert (execution.status, sink.asked) == (Status.QUOTA_EXCEEDED, 0)


def test_a_sink_that_breaks_meanwhile_leaves_nothing_behind(place: Arena) -> None:
    mark = f"left-behind-{place.folder.name}"
    plan = plan_job(place.job(SH, "-c", f"{SH} -c 'sleep 100; : {mark}' & echo off"), host())
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(ProcessExecutor(host()).run(plan, Broken()))
    assert marked_processes(mark) == []


def test_programs_beside_each_other_do_not_hold_up_the_loop(place: Arena) -> None:
    async def story() -> list[str]:
        made, kept = ProcessExecutor(host()), [Kept(), Kept()]
        plan = plan_job(place.job(SH, "-c", "sleep 0.2; echo done"), host())
        await asyncio.gather(*(made.run(plan, one) for one in kept))
        await made.close()
        return [one.stdout for one in kept]

    assert asyncio.run(story()) == ["done\n", "done\n"]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_start_program_that_cannot_be_run_is_told_as_what_it_is(owner: int) -> None:
    """Cold, the launcher goes on only when the program is known, so that it fails after everything was verified."""
    require(Tier.C)
    if not host().starter:
        pytest.skip("our start program does not run here")
    with arena(Tier.C, owner) as place:
        plan = plan_job(place.job("/usr/bin/true"), host())
        starter = plan.data.index(assemble(host().machine, first=True))
        broken = replace(plan, data=(*plan.data[:starter], b"no program", *plan.data[starter + 1 :]))
        sink = Kept()
        execution = asyncio.run(ProcessExecutor(host()).run(broken, sink))
    assert (execution.status, execution.reason, execution.exit_code) == (Status.FAILED, Reason.SPAWN_FAILED, None)


def test_what_is_left_of_a_call_is_reaped_a_moment_later(place: Arena) -> None:
    """A launcher whose sandbox is gone is not waited for, and nothing stays behind for all that."""

    async def story() -> tuple[list[int | None], list[int]]:
        made = ProcessExecutor(host(), warm=PoolSize(per_template=1, total=1, refill_after_s=0))
        plan = plan_job(place.job(SH, "-c", "exit 3"), host())
        try:
            codes = [(await made.run(plan, Kept())).exit_code for _ in range(3)]
        finally:
            await made.close()
        return codes, _children()

    before = _children()
    assert asyncio.run(story()) == ([3, 3, 3], before)


@promise("tree-kill.before-answer")
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_nobody_inside_outlives_the_answer(place: Arena, *, warm: bool) -> None:
    """Its first process is not waited for where it is the last; where anybody else is left there, it is."""
    mark = f"outlives-{place.folder.name}"
    left = f"setsid {SH} -c 'trap \"\" TERM HUP; while :; do sleep 1; done; : {mark}' >/dev/null 2>&1 &"
    scripts = ["exit 3", f"{left} exit 3", f"({left} {left}) & exit 3", "echo told; exit 3"] * 3
    if Guarantee.TREE_KILL not in (plan := plan_job(place.job(SH), host())).guarantees:
        pytest.skip(f"TREE_KILL is not claimed: {', '.join(plan.degraded)}")  # and they would go on for ever

    async def story() -> list[tuple[int | None, str, list[int]]]:
        size = PoolSize(per_template=1, total=1, refill_after_s=0)
        made, found = ProcessExecutor(host(), warm=size if warm else None), []
        try:
            for script in scripts:
                sink = Kept()
                execution = await made.run(plan_job(place.job(SH, "-c", script), host()), sink)
                survivors = [] if execution.degraded else marked_processes(mark)
                found.append((execution.exit_code, sink.stdout, survivors))
                if made.pool is not None:
                    await made.pool.settled()
        finally:
            await made.close()
        return found

    assert asyncio.run(story()) == [(3, "told\n" if "told" in script else "", []) for script in scripts]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_where_the_kernel_does_not_say_who_is_left_the_first_process_is_waited_for(
    place: Arena, monkeypatch: pytest.MonkeyPatch, *, warm: bool
) -> None:
    monkeypatch.setattr(_os, "is_childless", lambda _: False)

    async def story() -> list[tuple[int | None, int | None]]:
        size = PoolSize(per_template=1, total=1, refill_after_s=0)
        made = ProcessExecutor(host(), warm=size if warm else None)
        plans = [plan_job(place.job(SH, "-c", script), host()) for script in ("exit 3", "kill -9 $$")]
        try:
            done = [await made.run(plan, Kept()) for plan in plans * 2]
        finally:
            await made.close()
        return [(one.exit_code, one.signal) for one in done]

    before = _children()
    assert (asyncio.run(story()), _children()) == ([(3, None), (None, 9)] * 2, before)


def _children() -> list[int]:
    with open(f"/proc/self/task/{threading.get_native_id()}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.parametrize("subreaper", [False, True], ids=["alone", "subreaper"])
def test_a_sandbox_that_has_ended_can_be_ended_again(place: Arena, *, subreaper: bool) -> None:
    """As it is where the caller is cancelled while it ends: that was told as an error of our own, not as cancelled."""

    async def story() -> Ended:
        executor = ProcessExecutor(replace(host(), subreaper=subreaper))
        try:
            program = await executor.begin(plan_job(place.job(SH, "-c", "exit 3"), host()))
            while not has_ended(program.program_fd):
                await asyncio.sleep(0.001)
            program.cut_off()
            program.is_gone(0.0)
            ended = await program.end(program_ended=True)
            assert await program.end(program_ended=False) == Ended()
            return ended
        finally:
            await executor.close()

    assert asyncio.run(story()).exit_code == 3
