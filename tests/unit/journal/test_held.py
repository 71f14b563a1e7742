"""What calls under way hold of budgets, and for which day a run counts: rows that somebody changes are found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palyra.budget.store import BudgetStore
from palyra.journal.store import JournalStore
from palyra.launch import store
from palyra.model.budget import UNLIMITED, Allowance, Quota, Spending
from palyra.model.process import BackgroundProcess, ProcessOwner, ProcessStatus
from palyra.model.record import Owner, RunSpec
from palyra.state.writer import Writer
from palyra.wiring.processes import ProcessRecords
from tests.journaling import closing, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import audit, open_writer, tampering
from tests.unit.launch.orders import make_order, make_process

HELD = Spending(wall_us=4_000_000, output_bytes=5)
LIMITED = Allowance(wall_us=10_000_000)
SHARED = Quota(calls=100)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = open_writer(tmp_path / "home")
    yield writer
    writer.close()


def spec(**given: Any) -> RunSpec:
    return replace(run_spec(ulid()), **{"most": LIMITED, **given})


def begin(writer: Writer, run: RunSpec) -> str:
    call_id = ulid()
    asyncio.run(JournalStore(writer, BudgetStore()).open_call(replace(opening(call_id, run), reserve=HELD)))
    return call_id


def end(writer: Writer, run: RunSpec, call_id: str, **given: Any) -> None:
    asyncio.run(JournalStore(writer, BudgetStore()).close_call(replace(closing(call_id, run), **given)))


def found(writer: Writer) -> list[str]:
    """With the owner of open calls alive, as in a home that is used while it is verified."""
    return [one.detail for one in audit(writer.home, alive=True).findings]


@promise("journal.held-budget")
def test_what_calls_hold_is_what_their_intents_say(writer):
    run, shared, free = spec(), spec(most=UNLIMITED, quota=SHARED), spec(most=UNLIMITED)
    calls = [(one, begin(writer, one)) for one in (run, shared, free)]
    assert found(writer) == []
    for one, call_id in calls:
        end(writer, one, call_id, spent=Spending(wall_us=1))
    assert (found(writer), writer.rows("SELECT count(*) FROM reservations")) == ([], [(0,)])


EDITS = {
    "gone": "DELETE FROM reservations",
    "less": "UPDATE reservations SET wall_us = 0",
    "negative": "UPDATE reservations SET fuel = -1",
    "another run's": "UPDATE reservations SET run_id = (SELECT run_id FROM runs WHERE wall_us_max IS NULL)",
    "made up, for a larger budget": "INSERT INTO reservations SELECT 'X', run_id, -9, 0, 0, 0, 0 FROM runs LIMIT 1",
    "made up, for nothing left": "INSERT INTO reservations SELECT 'X', run_id, 9, 9, 9, 9, 9 FROM runs LIMIT 1",
}


@promise("journal.held-budget")
@pytest.mark.parametrize("edit", EDITS)
def test_a_budget_that_somebody_raised_by_what_calls_hold_is_found(writer, edit):
    begin(writer, spec())
    begin(writer, spec(most=UNLIMITED))
    with tampering(writer.home) as other:
        other.execute("PRAGMA foreign_keys = OFF")
        other.execute(EDITS[edit])
    (detail,) = found(writer)
    assert "of a budget" in detail


@promise("journal.held-budget")
def test_an_interrupted_call_that_somebody_made_to_cost_nothing_is_found_for_good(writer):
    run = spec()
    call_id = begin(writer, run)
    with tampering(writer.home) as other:
        other.execute("DELETE FROM reservations")
    end(writer, run, call_id, status="interrupted", entry=_interrupted(call_id, run), spent=None)
    assert "counts less for an interrupted call than was held for it" in " ".join(found(writer))


def _interrupted(call_id: str, run: RunSpec) -> Any:
    draft = closing(call_id, run).entry
    return replace(draft, predicate={**draft.predicate, "status": "interrupted"})


# ── what outlives its call ──


def leave_running(writer: Writer, run: RunSpec) -> BackgroundProcess:
    call_id = begin(writer, run)
    order = make_order(call_id=call_id, owner=ProcessOwner(run.run_id, run.principal))
    process: BackgroundProcess = make_process(order, keeper=Owner("boot", 2, 2))
    asyncio.run(ProcessRecords(writer).started(process))
    end(writer, run, call_id, holds=True, spent=Spending())
    return process


def lose(writer: Writer, process: BackgroundProcess) -> None:
    lost = replace(process, status=ProcessStatus.LOST, ended_unix_ms=9)
    asyncio.run(ProcessRecords(writer).ended(lost, {}))


def test_what_a_background_process_holds_is_held_until_its_end(writer):
    process = leave_running(writer, spec())
    assert (found(writer), writer.rows("SELECT count(*) FROM reservations")) == ([], [(1,)])
    lose(writer, process)
    assert (found(writer), writer.rows("SELECT count(*) FROM reservations")) == ([], [(0,)])


def test_a_process_that_ended_before_its_call_holds_nothing(writer):
    run = spec()
    call_id = begin(writer, run)
    order = make_order(call_id=call_id, owner=ProcessOwner(run.run_id, run.principal))
    process: BackgroundProcess = make_process(order)
    asyncio.run(ProcessRecords(writer).started(process))
    lose(writer, process)
    assert found(writer) == []
    end(writer, run, call_id, holds=True, spent=Spending())
    assert found(writer) == []


@promise("journal.held-budget")
def test_what_a_background_process_holds_cannot_be_taken_away_unseen(writer):
    process = leave_running(writer, spec())
    with tampering(writer.home) as other:
        other.execute("DELETE FROM reservations")
    (detail,) = found(writer)
    assert detail.startswith("Nothing is held of a budget for call")
    lose(writer, process)
    assert "counts less for a lost process than was held for it" in " ".join(found(writer))


def test_what_an_older_version_holds_is_no_finding(writer):
    """Its intents name no amounts, and nothing told of the start of its background processes."""
    run = spec(most=UNLIMITED)
    under_way, call_id = begin(writer, run), begin(writer, run)
    end(writer, run, call_id)
    order = make_order(call_id=call_id, owner=ProcessOwner(run.run_id, run.principal))
    writer.commit_now(partial(store.insert_process, process=make_process(order)))
    sql = "INSERT INTO reservations VALUES (?, ?, 1, 1, 1, 1, 1)"
    with tampering(writer.home) as other:
        for held_by in (under_way, call_id):
            other.execute(sql, (held_by, run.run_id))
    assert [detail for detail in found(writer) if "budget" in detail] == []


# ── the day ──


@promise("journal.held-budget")
@pytest.mark.parametrize("is_refused", [False, True], ids=["a call", "a refusal"])
def test_a_run_that_somebody_moved_to_another_day_is_found(writer, is_refused):
    """What its principal's runs share is counted by the day that each began."""
    run = spec(quota=SHARED)
    if is_refused:
        end(writer, run, ulid(), opened=False)
    end(writer, run, begin(writer, run))
    end(writer, run, ulid(), opened=False)
    assert found(writer) == []
    with tampering(writer.home) as other:
        other.execute("UPDATE runs SET created_unix_ms = created_unix_ms - 86400000")
    assert found(writer) == [f"The row of run {run.run_id} differs from its entries: created_unix_ms."]
