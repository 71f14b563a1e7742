"""Runs for operators: listed, shown, extended in one transaction with the entry that says so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palyra.errors import Reason, Rejected
from palyra.model.budget import Allowance, Spending
from palyra.wiring.runs import RunDesk
from tests.journaling import NOW, audit_home, closing, open_store, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import tampering

RUN = replace(run_spec(ulid(9), calls_max=1), most=Allowance(wall_us=5))


@pytest.fixture
def desk(home):
    writer, store = open_store(home)
    yield RunDesk(writer, now_unix_ms=lambda: NOW), store, writer
    writer.close()


async def call(store, run=RUN):
    call_id = ulid()
    await store.open_call(opening(call_id, run))
    await store.close_call(closing(call_id, run))


def about_runs(writer):
    return [finding.detail for finding in audit_home(writer.home).findings if "run" in finding.detail]


def test_an_extended_run_goes_on(desk):
    runs, store, writer = desk

    async def scenario():
        await call(store)
        with pytest.raises(Rejected, match="1 of its 1 calls"):
            await call(store)
        view = await runs.extend(RUN.run_id, by="user:operator", calls=2, attempts=3, more=Spending(wall_us=7))
        await call(store)
        return view

    view = asyncio.run(scenario())
    assert (view.budget.calls_max, view.budget.attempts_max, view.budget.wall_us_max) == (3, 1003, 12)
    assert about_runs(writer) == []
    assert runs.find(RUN.run_id).budget.calls_used == 2
    assert [run.run_id for run in runs.list()] == [RUN.run_id]


@promise("journal.raised-budget")
def test_limits_that_somebody_raised_in_the_row_are_found_whatever_came_after(desk):
    _, store, writer = desk
    asyncio.run(call(store))
    with tampering(writer.home) as other:
        other.execute("UPDATE runs SET calls_max = 100")
    assert about_runs(writer) == [f"The row of run {RUN.run_id} differs from its entries: calls_max."]
    asyncio.run(call(store))
    assert about_runs(writer) == [
        f"Entry 2 gives other limits for run {RUN.run_id} than before, and nobody extended them."
    ]


@promise("journal.moved-run")
@pytest.mark.parametrize("opened", [True, False], ids=["a call", "a refusal"])
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE runs SET workspace = '/'",
        "UPDATE runs SET created_unix_ms = created_unix_ms + 86400000",
        "UPDATE runs SET salt = NULL",
        "UPDATE runs SET salt = zeroblob(32), workspace = '/'",
        "UPDATE runs SET salt = x'00'",
    ],
)
def test_a_run_that_somebody_moved_to_another_workspace_or_day_is_found(desk, edit, opened):
    """Its later calls would begin where the row says; an entry tells of it, and nobody learns the path by that."""
    _, store, writer = desk

    async def scenario():
        call_id = ulid()
        if opened:
            await store.open_call(opening(call_id, RUN))
        await store.close_call(closing(call_id, RUN, opened=opened))
        await call(store, run_spec(ulid()))

    asyncio.run(scenario())
    assert about_runs(writer) == []
    bodies = [entry.body for entry in store.tail(9)]
    told = [b'"run_commitment":"' in body for body in bodies]
    assert told == ([True, False] if opened else [True]) + [True, False], "the first entry of each run"
    assert not any(RUN.workspace.encode() in body for body in bodies)
    with tampering(writer.home) as other:
        other.execute(f"{edit} WHERE run_id = ?", (RUN.run_id,))
    named = "workspace or created_unix_ms"
    assert about_runs(writer) == [f"The row of run {RUN.run_id} differs from its entries: {named}."]


def test_a_run_of_an_older_version_whose_entries_tell_of_no_workspace_verifies(desk, monkeypatch):
    _, store, writer = desk
    with monkeypatch.context() as older:
        older.setattr("palyra.journal.store._first", lambda *_: {})
        asyncio.run(call(store, run := run_spec(ulid())))
    with tampering(writer.home) as other:
        other.execute("UPDATE runs SET salt = NULL")
    asyncio.run(call(store, run))
    assert about_runs(writer) == []


@promise("journal.raised-budget")
@pytest.mark.parametrize("opened", [True, False], ids=["a call", "a refusal"])
@pytest.mark.parametrize("looks_new", [True, False])
def test_a_row_that_somebody_made_before_the_run_began_raises_no_limit(desk, opened, looks_new):
    """The run's first entry would state whatever limits stand there, and every later one the same."""
    runs, store, writer = desk
    names = "run_id, principal, workspace, calls_used, calls_max, attempts_used, attempts_max, created_unix_ms"
    with tampering(writer.home) as other:
        forged = (RUN.run_id, "agent:other", "/", -9, 10**6, -9, 10**6, 1)
        other.execute(f"INSERT INTO runs ({names}, wall_us_used) VALUES ({'?, ' * 8} -9)", forged)
    assert about_runs(writer) == [f"The row of run {RUN.run_id} has no entry."]
    with pytest.raises(Rejected, match="There is no run"):
        asyncio.run(runs.extend(RUN.run_id, by="user:operator", calls=1))

    async def scenario():
        call_id = ulid()
        if opened:
            await store.open_call(replace(opening(call_id, RUN), run_looks_new=looks_new))
        await store.close_call(closing(call_id, RUN, opened=opened))

    asyncio.run(scenario())
    used, most = ("calls_used", "calls_max") if opened else ("attempts_used", "attempts_max")
    columns = f"principal, workspace, created_unix_ms, {used}, {most}, wall_us_used, wall_us_max"
    limit = RUN.calls_max if opened else RUN.attempts_max
    assert writer.rows(f"SELECT {columns} FROM runs") == [("agent:demo", "/workspace", NOW, 1, limit, 0, 5)]
    assert about_runs(writer) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"by": "agent:demo", "calls": 1}, Reason.CAPABILITY_DENIED),
        ({"by": "user:operator"}, Reason.BAD_ARGUMENTS),
        ({"by": "user:operator", "more": Spending(fuel=1)}, Reason.BAD_ARGUMENTS),
        ({"by": "user:operator", "calls": 1, "run_id": ulid(10)}, Reason.BAD_ARGUMENTS),
    ],
    ids=["an agent", "nothing", "no limit", "no run"],
)
def test_what_cannot_be_extended_is_refused_and_changes_nothing(desk, given, reason):
    runs, store, _ = desk
    asyncio.run(call(store))
    before = runs.find(RUN.run_id)
    with pytest.raises(Rejected) as caught:
        asyncio.run(runs.extend(given.pop("run_id", RUN.run_id), **given))
    assert (caught.value.reason, runs.find(RUN.run_id)) == (reason, before)
