"""A budget is exact, whoever spends it and however many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.budget.store import BudgetStore
from palyra.errors import Reason, Rejected, StateError
from palyra.journal.commitments import run_commitment
from palyra.model.budget import UNLIMITED, Allowance, Quota, Spending
from palyra.model.outcome import Usage
from palyra.model.record import Opening, Recorded, RunSpec
from palyra.state.writer import Writer
from tests.journaling import NOW, act, audit_home, closing, open_store, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import open_writer

BUDGET = BudgetStore()


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    opened = open_writer(home)
    yield opened
    opened.close()


@promise("calls.budget-exact")
def test_sixty_four_at_once_on_a_budget_of_forty_spend_exactly_forty(home: Path) -> None:
    writer, store = open_store(home)
    run = run_spec(ulid(), calls_max=40)

    async def scenario() -> list[Any]:
        many = (store.open_call(opening(ulid(), run)) for _ in range(64))
        return await asyncio.gather(*many, return_exceptions=True)

    answers = asyncio.run(scenario())
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    assert sorted(answer.budget.calls_used for answer in answers if answer not in refused) == list(range(1, 41))
    assert [(refusal.reason, len(refused)) for refusal in refused[:1]] == [(Reason.BUDGET_SPENT, 24)]
    assert asyncio.run(store.budget(run.run_id)).counts == (40, 40, 0, 1000)
    assert len(store.tail(100)) == 40
    writer.close()


def test_a_run_is_stored_once_and_keeps_what_it_started_with(writer: Writer) -> None:
    run_id = ulid()

    def work(tx: Any) -> list[str | None]:
        wider = run_spec(run_id, calls_max=10**6)
        stranger = run_spec(run_id, principal="agent:other")
        first = BUDGET.ensure_run(tx, run_spec(run_id, calls_max=3))
        tx.append(act(run_id=run_id), at_unix_ms=NOW)
        return [first, *(BUDGET.ensure_run(tx, run) for run in (wider, stranger))]

    first, *later = writer.commit_now(work)[0]
    assert first == run_commitment("/workspace", NOW, *writer.rows("SELECT salt FROM runs")[0])
    assert later == ["", None], "told once; and it is another's"
    assert BUDGET.read_ledger(writer, run_id).counts == (0, 3, 0, 1000)


def test_a_run_whose_attempts_are_gone_runs_nothing_more(home: Path) -> None:
    writer, store = open_store(home)
    run = run_spec(ulid(), attempts_max=2)

    async def scenario() -> None:
        for _ in range(2):
            await store.close_call(closing(ulid(), run, opened=False))
        with pytest.raises(Rejected) as refused:
            await store.open_call(opening(ulid(), run))
        assert refused.value.reason is Reason.BUDGET_SPENT

    asyncio.run(scenario())
    assert audit_home(writer.home).findings == ()
    writer.close()


def test_a_run_that_is_not_known_cannot_be_spent(writer: Writer) -> None:
    assert BUDGET.read_ledger(writer, "nobody") is None
    nobody = run_spec("nobody")
    for work in (
        lambda tx: BUDGET.spend_attempt(tx, "nobody"),
        lambda tx: BUDGET.settle(tx, nobody, ulid(), None),
    ):
        with pytest.raises(StateError, match="not known"):
            writer.commit_now(work)


def test_the_first_call_stores_its_run_and_a_stranger_spends_nothing_of_it(writer: Writer) -> None:
    run = run_spec(ulid(), calls_max=3)
    stranger = replace(run, principal="agent:other")

    def work(tx: Any) -> list[int | None]:
        spent = [BUDGET.spend_call(tx, one, ulid()) for one in (run, stranger, run)]
        return [None if one is None else one[0] for one in spent]

    assert writer.commit_now(work)[0] == [0, None, 1], "each call's entry has the next number of its run"
    assert BUDGET.read_ledger(writer, run.run_id).counts == (2, 3, 0, 1000)


@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_only_looked_new_is_counted_as_it_is_stored(writer: Writer, known: bool) -> None:
    run = run_spec(ulid(), calls_max=5)

    def spend(tx: Any, one: RunSpec) -> Any:
        return BUDGET.spend_call(tx, one, ulid(), looks_new=True)

    if known:
        writer.commit_now(lambda tx: BUDGET.spend_call(tx, run, ulid()))
    spent = writer.commit_now(lambda tx: spend(tx, replace(run, calls_max=1000)))[0]
    assert spent[0] == (1 if known else 0)
    assert spent[1].calls_used == (2 if known else 1)
    assert spent[1].calls_max == (5 if known else 1000), "what is stored counts"
    assert writer.commit_now(lambda tx: spend(tx, replace(run, principal="agent:other")))[0] is None
    stored = BUDGET.read_ledger(writer, run.run_id)
    assert (stored.calls_used, stored.calls_max) == (spent[1].calls_used, spent[1].calls_max)


# ── what calls use ──

SECOND = 1_000_000
WALL = Allowance(wall_us=10 * SECOND)


def limited(run_id: str, **given: Any) -> RunSpec:
    return replace(run_spec(run_id), **{"most": WALL, **given})


def reserving(run: RunSpec, call_id: str, wall_us: int) -> Opening:
    return replace(opening(call_id, run), reserve=Spending(wall_us=wall_us))


def test_calls_side_by_side_never_hold_more_than_there_is(home: Path) -> None:
    writer, store = open_store(home)
    run = limited(ulid())

    async def scenario() -> list[Any]:
        many = (store.open_call(reserving(run, ulid(), 3 * SECOND)) for _ in range(64))
        return await asyncio.gather(*many, return_exceptions=True)

    answers = asyncio.run(scenario())
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    assert len(refused) == 61
    assert refused[0].detail == ("The run has used 0 of its 10 s of wall time, and calls under way hold 9.")
    ledger = BUDGET.read_ledger(writer, run.run_id)
    assert ledger is not None
    assert (ledger.calls_used, ledger.reserved) == (3, Spending(wall_us=9 * SECOND))
    writer.close()


def test_what_was_held_is_given_back_and_what_was_used_is_counted(home: Path) -> None:
    writer, store = open_store(home)
    run, used = limited(ulid()), Spending(wall_us=SECOND, cpu_us=7, output_bytes=8, egress_bytes=9, fuel=10)

    async def scenario() -> Recorded:
        first = ulid()
        await store.open_call(reserving(run, first, 10 * SECOND))
        return await store.close_call(replace(closing(first, run), spent=used))

    view = asyncio.run(scenario()).budget
    assert (view.wall_us_used, view.wall_us_max, view.cpu_us_used, view.cpu_us_max) == (SECOND, 10 * SECOND, 7, None)
    assert (view.output_bytes_used, view.egress_bytes_used, view.fuel_used) == (8, 9, 10)
    ledger = BUDGET.read_ledger(writer, run.run_id)
    assert ledger is not None
    assert (ledger.used, ledger.reserved) == (used, Spending())
    assert [f.detail for f in audit_home(writer.home).findings if "run" in f.detail] == []
    writer.close()


def test_where_nobody_knows_what_was_used_all_that_was_held_counts(home: Path) -> None:
    writer, store = open_store(home)
    run = limited(ulid())

    async def scenario() -> Recorded:
        first = ulid()
        await store.open_call(reserving(run, first, 4 * SECOND))
        return await store.close_call(replace(closing(first, run), spent=None))

    assert asyncio.run(scenario()).budget.wall_us_used == 4 * SECOND
    assert [f.detail for f in audit_home(writer.home).findings if "run" in f.detail] == []
    writer.close()


def test_what_goes_on_keeps_what_it_holds_until_its_own_end(home: Path) -> None:
    writer, store = open_store(home)
    run, call_id = limited(ulid()), ulid()

    async def scenario() -> None:
        await store.open_call(reserving(run, call_id, 4 * SECOND))
        await store.close_call(replace(closing(call_id, run), holds=True))

    asyncio.run(scenario())
    ledger = BUDGET.read_ledger(writer, run.run_id)
    assert ledger is not None
    assert (ledger.used.wall_us, ledger.reserved.wall_us) == (0, 4 * SECOND)
    usage = Usage(wall_us=SECOND, cpu_us=None, output_bytes=3)
    spent, _ = writer.commit_now(lambda tx: BUDGET.settle_process(tx, run.run_id, call_id, usage))
    assert spent == Spending(wall_us=SECOND, output_bytes=3)
    ledger = BUDGET.read_ledger(writer, run.run_id)
    assert ledger is not None
    assert (ledger.used, ledger.reserved) == (spent, Spending())
    writer.close()


def test_runs_of_one_principal_share_its_day(home: Path) -> None:
    writer, store = open_store(home)
    quota = Quota(calls=3, most=Allowance(wall_us=5 * SECOND))

    async def use(run: RunSpec, wall_us: int) -> None:
        call_id = ulid()
        await store.open_call(reserving(run, call_id, wall_us))
        await store.close_call(replace(closing(call_id, run), spent=Spending(wall_us=wall_us)))

    async def scenario() -> None:
        one, two = (limited(ulid(), most=UNLIMITED, quota=quota) for _ in range(2))
        await use(one, 2 * SECOND)
        with pytest.raises(Rejected, match="agent:demo has used 2 of its 5 s of wall time"):
            await use(two, 4 * SECOND)
        await use(two, SECOND)
        await use(limited(ulid(), most=UNLIMITED, quota=quota, principal="agent:other"), 5 * SECOND)
        await use(one, SECOND)
        with pytest.raises(Rejected, match="agent:demo has used 3 of its 3 calls of the day"):
            await use(two, 1)
        tomorrow = limited(ulid(), most=UNLIMITED, quota=quota, created_unix_ms=NOW + 86_400_000)
        await use(tomorrow, 5 * SECOND)

    asyncio.run(scenario())
    writer.close()


def test_a_run_without_limits_holds_nothing(home: Path) -> None:
    writer, store = open_store(home)
    asyncio.run(store.open_call(reserving(run_spec(ulid()), ulid(), 10**12)))
    assert writer.rows("SELECT count(*) FROM reservations") == [(0,)]
    writer.close()
