"""Where a run stands is known without asking only while it is what would be read: whoever commits, and whatever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.api import AsyncPalyra
from palyra.api_async import AsyncRun
from palyra.engine.ports import Standing
from palyra.errors import Reason
from palyra.model.budget import Allowance
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import MAX_COUNTED, RunFacts, RunLabel
from palyra.state import log_index
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.wiring.known_runs import FEW_CALLS, MAX_TOLD, Known, KnownRuns
from palyra.wiring.policy_acts import use_policies
from palyra.wiring.standing import StandingStore
from tests.journaling import ulid
from tests.stores import on_sqlite

FORBID = """@id("local.no-echo")
@reason("No echo here.")
forbid (principal, action == Action::"tool::execute", resource == Tool::"palyra.echo");
"""
Work = Callable[[AsyncPalyra, AsyncRun], Awaitable[None]]


class Watched:
    """An installation's standings, each compared with what a store that knows nothing reads in the same moment."""

    def __init__(self, palyra: AsyncPalyra) -> None:
        ports: Any = palyra.installation.ports
        self._store = ports.standings
        self._ports = ports
        self.known = self._store._known
        self.answers: list[bool] = []
        """Whether each was given without asking."""

    def read(self, run: AsyncRun, principal: str = "agent:demo") -> Standing:
        owner, told = ProcessOwner(run.run_id, principal), list[Standing | None]()
        ask = self.known.read

        def tell(*words: Any) -> Standing | None:
            told.append(ask(*words))
            return told[-1]

        self.known.read = tell
        try:
            standing: Standing = self._store.read(owner)
        finally:
            self.known.read = ask
        self.answers.append(told[-1] is not None)
        bare = StandingStore(self._store._writer, self._store._budget, self._store._clock)
        assert standing == bare.read(owner)
        return standing


def play(home: Path, workspace: Path, work: Work) -> None:
    async def story() -> None:
        async with AsyncPalyra(str(home)) as palyra:
            await work(palyra, palyra.run("agent:demo", workspace))

    asyncio.run(story())


@on_sqlite
def test_of_calls_one_after_the_other_nothing_is_read_back(tmp_path: Path, workspace: Path) -> None:
    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        watched = Watched(palyra)
        for step in range(12):
            standing = watched.read(run)
            assert (standing.budget.calls_used if standing.budget else 0) == step
            assert standing.facts == RunFacts(calls_last_minute=step)
            await run.call("palyra.echo", {"n": step})
        # The log is grown once, on a thread, and whoever commits meanwhile does not do so alone.
        assert watched.answers.count(True) >= 6

    play(tmp_path / "home", workspace, work)


def test_who_asked_before_a_run_was_another_s_is_told_so_then(tmp_path: Path, workspace: Path) -> None:
    """What is known of a run that nobody knows is wrong for everybody once somebody begins it."""

    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        watched = Watched(palyra)
        for step in range(3):
            assert watched.read(run, "agent:other").budget is None or step
            watched.read(run)
            watched.read(run, "agent:other")
            await run.call("palyra.echo", {"n": step})

    play(tmp_path / "home", workspace, work)


@on_sqlite
def test_calls_of_several_runs_leave_what_is_known_of_the_others(tmp_path: Path, workspace: Path) -> None:
    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        watched, other = Watched(palyra), palyra.run("agent:other", workspace)
        for step in range(5):
            watched.read(run)
            watched.read(other, "agent:other")
            await (run if step % 2 else other).call("palyra.echo", {"n": step})
        assert watched.answers.count(True) >= 4

    play(tmp_path / "home", workspace, work)


async def refuse(palyra: AsyncPalyra, run: AsyncRun) -> None:
    assert (await run.call("palyra.process.run", {"command": "bash"})).reason is not None


async def mark(palyra: AsyncPalyra, run: AsyncRun) -> None:
    owner = ProcessOwner(run.run_id, "agent:demo")
    await palyra.installation.ports.run_facts.mark(owner, ulid(8), [RunLabel.HAS_USED_SECRET])


async def extend(palyra: AsyncPalyra, run: AsyncRun) -> None:
    await palyra.runs.extend(run.run_id, by="user:demo", calls=7)


async def change_policies(palyra: AsyncPalyra, run: AsyncRun) -> None:
    await use_policies(palyra.installation, {"local.cedar": FORBID}, by="user:demo")


async def call_many(palyra: AsyncPalyra, run: AsyncRun) -> None:
    again = palyra.run("agent:demo", run.run.workspace, run_id=run.run_id)
    await asyncio.gather(*(again.call("palyra.echo", {"n": n}) for n in range(5)))


CHANGES = [refuse, mark, extend, change_policies, call_many]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("by_other", [False, True], ids=["by this installation", "by another"])
def test_whatever_is_committed_between_two_calls_is_seen_by_the_next(
    tmp_path: Path, workspace: Path, change: Work, *, by_other: bool
) -> None:
    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        async with AsyncPalyra(str(tmp_path / "home")) as other:
            watched = Watched(palyra)
            for _ in range(4):
                before = watched.read(run)
                await run.call("palyra.echo", {"n": 1})
            before = watched.read(run)
            await change(other if by_other else palyra, run)
            assert watched.read(run) != before
            await run.call("palyra.echo", {"n": 2})
            watched.read(run)

    play(tmp_path / "home", workspace, work)


SPEND = """
import asyncio, sys
from palyra import AsyncPalyra
async def main(home, workspace, run_id, count):
    async with AsyncPalyra(home) as palyra:
        run = palyra.run("agent:demo", workspace, run_id=run_id)
        for n in range(int(count)):
            assert (await run.call("palyra.echo", {"n": n})).success
asyncio.run(main(*sys.argv[1:]))
"""


def test_what_another_process_spends_between_two_calls_is_missing_in_the_next(tmp_path: Path, workspace: Path) -> None:
    home = tmp_path / "home"

    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        run = palyra.run("agent:demo", workspace, calls_max=8)
        watched = Watched(palyra)
        for _ in range(4):
            assert (await run.call("palyra.echo", {"n": 1})).success
        watched.read(run)
        words = [sys.executable, "-c", SPEND, str(home), str(workspace), run.run_id, "4"]
        await asyncio.to_thread(subprocess.run, words, check=True, timeout=60)
        standing = watched.read(run)
        assert standing.budget is not None
        assert (standing.budget.calls_left, watched.answers[-1]) == (0, False)
        assert (await run.call("palyra.echo", {"n": 1})).reason is Reason.BUDGET_SPENT

    play(home, workspace, work)


@on_sqlite
def test_a_commit_that_came_in_between_is_never_taken_for_part_of_our_own(tmp_path: Path, workspace: Path) -> None:
    """After the standing was read and before the call is opened: two commits lie between, and only one was told."""

    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        async with AsyncPalyra(str(tmp_path / "home")) as other:
            watched = Watched(palyra)
            for _ in range(3):
                watched.read(run)
                await run.call("palyra.echo", {"n": 1})
            writer: Any = palyra.installation.writer
            alone = writer.commit_alone

            def commit_alone(work: Any, *, closing: bool = False) -> Any:
                other.installation.writer.commit_now(lambda tx: tx.keep_meta("seen", "yes"))
                return alone(work, closing=closing)

            writer.commit_alone = commit_alone
            watched.read(run)
            await run.call("palyra.echo", {"n": 2})
            watched.read(run)
            assert watched.answers[-1] is False

    play(tmp_path / "home", workspace, work)


@pytest.mark.parametrize("most", [Allowance(wall_us=10**9), Allowance(output_bytes=10**6, cpu_us=10**9)])
def test_a_run_with_limits_is_read_each_time(tmp_path: Path, workspace: Path, most: Allowance) -> None:
    async def work(palyra: AsyncPalyra, _: AsyncRun) -> None:
        run, watched = palyra.run("agent:demo", workspace, budget=most), Watched(palyra)
        for step in range(4):
            standing = watched.read(run)
            assert step == 0 or (standing.budget is not None and not standing.budget.most.is_unlimited)
            await run.call("palyra.process.run", {"command": "true"})
        assert watched.answers == [False] * 4

    play(tmp_path / "home", workspace, work)


def test_where_the_database_gives_no_sign_nothing_is_known(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server. SQLite's own word, without the log's index, does not count commits either."""
    monkeypatch.setattr(log_index, "_own_descriptor", lambda _: -1)

    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        watched = Watched(palyra)
        for step in range(4):
            watched.read(run)
            await run.call("palyra.echo", {"n": step})
        assert watched.answers == [False] * 4
        monkeypatch.setattr(palyra.installation.writer, "moment", lambda: None)
        for step in range(4):
            watched.read(run)
            await run.call("palyra.echo", {"n": step})
        assert watched.answers == [False] * 8

    play(tmp_path / "home", workspace, work)


def test_after_a_fork_nothing_is_known(tmp_path: Path, workspace: Path) -> None:
    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        watched = Watched(palyra)
        for step in range(3):
            await run.call("palyra.echo", {"n": step})
        writer: Any = palyra.installation.writer
        writer._pid = 0  # as a child finds it: the connection is the parent's
        watched.read(run)
        assert watched.answers == [False]

    play(tmp_path / "home", workspace, work)


# ── by itself ──


def test_a_moment_counts_every_commit_whoever_made_it(home: Path) -> None:
    one, other = Writer.open(home), Writer.open(home)
    values = iter("12345678")

    def put(tx: Transaction) -> None:
        tx.keep_meta("kept", next(values))

    first, count = one.moment(), log_index.commits_between
    for made, writer in enumerate((one, other, one, other), 1):
        writer.commit_now(put)
        now = one.moment()
        assert (count(first, now), count(now, now), count(now, first)) == (made, 0, -made)
        assert count(first, other.moment()) == -1  # of another connection
    assert count(None, one.moment()) == count(first, None) == count((1, 2, 3), (1, 2, 3)) == -1
    one.close()
    other.close()


def test_who_is_told_and_never_asks_keeps_nothing(tmp_path: Path, workspace: Path) -> None:
    async def work(palyra: AsyncPalyra, run: AsyncRun) -> None:
        watched: Any = Watched(palyra)
        for step in range(3):
            await run.call("palyra.echo", {"n": step})
        read = watched.known.read
        watched.known.read = lambda *_: None  # as calls that are runs of their own
        for step in range(MAX_TOLD):
            await run.call("palyra.echo", {"n": step})
        assert len(watched.known._told) == MAX_TOLD
        watched.known.read = read
        watched.read(run)
        assert watched.known._told == []

    play(tmp_path / "home", workspace, work)


def test_calls_are_counted_until_they_are_a_minute_old_and_no_further_than_anybody_is_told() -> None:
    standing = Standing(budget=None, policy_is_read=True, policy=None, policy_number=3)
    known = Known(standing=standing, principal="agent:demo", labels=frozenset(), since_unix_ms=0, opened_unix_ms=[])
    for at in (5, 7, 6, 7):  # a clock may be put back by a little
        known.count(at)
    counts = [found and found.facts and found.facts.calls_last_minute for found in map(known.now, (4, 5, 6, 7, 6))]
    assert counts == [4, 3, 2, 0, None]
    for at in range(MAX_COUNTED + 50):
        known.count(100 + at)
    full, half = known.now(120), known.now(599)
    assert full is not None
    assert half is not None
    assert full.facts == RunFacts(calls_last_minute=MAX_COUNTED)
    assert half.facts == RunFacts(calls_last_minute=MAX_COUNTED - 450)


def test_times_are_read_again_only_where_knowing_them_has_paid(home: Path) -> None:
    writer, owner = Writer.open(home), ProcessOwner(ulid(1), "agent:demo")
    runs = KnownRuns(writer)
    assert not runs.is_worth(0)  # a command that asks once
    standing = Standing(budget=None, policy_is_read=True)
    assert [runs.read(owner, 0) for _ in range(2)] == [None, None]
    assert runs.is_worth(FEW_CALLS)
    assert not runs.is_worth(FEW_CALLS + 1)
    runs.keep(
        owner.run_id,
        Known(standing=standing, principal="agent:demo", labels=frozenset(), since_unix_ms=0, opened_unix_ms=[]),
    )
    assert all(runs.read(owner, 0) is not None for _ in range(20))
    assert runs.is_worth(FEW_CALLS + 20)
    assert not runs.is_worth(FEW_CALLS + 20)
    writer.close()
