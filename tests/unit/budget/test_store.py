"""A budget is exact, whoever spends it and however many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.budget.store import BudgetStore
from palyra.errors import Reason, Rejected, StateError
from palyra.state.writer import Writer
from tests.journaling import audit_home, closing, open_store, opening, run_spec, ulid

BUDGET = BudgetStore()


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    opened = Writer.open(home)
    yield opened
    opened.close()


def test_sixty_four_at_once_on_a_budget_of_forty_spend_exactly_forty(home: Path) -> None:
    writer, store = open_store(home)
    run = run_spec(ulid(), calls_max=40)

    async def scenario() -> list[Any]:
        many = (store.open_call(opening(ulid(), run)) for _ in range(64))
        return await asyncio.gather(*many, return_exceptions=True)

    answers = asyncio.run(scenario())
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    assert sorted(answer.calls_used for answer in answers if answer not in refused) == list(range(1, 41))
    assert [(refusal.reason, len(refused)) for refusal in refused[:1]] == [(Reason.BUDGET_SPENT, 24)]
    assert asyncio.run(store.budget(run.run_id)) == (40, 40, 0, 1000)
    assert len(store.tail(100)) == 40
    writer.close()


def test_a_run_is_stored_once_and_keeps_what_it_started_with(writer: Writer) -> None:
    run_id = ulid()

    def work(tx: Any) -> list[bool]:
        wider = run_spec(run_id, calls_max=10**6)
        stranger = run_spec(run_id, principal="agent:other")
        return [BUDGET.ensure_run(tx, run) for run in (run_spec(run_id, calls_max=3), wider, stranger)]

    assert writer.commit_now(work)[0] == [True, True, False]
    assert BUDGET.read_ledger(writer, run_id) == (0, 3, 0, 1000)


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
    for spend in (BUDGET.spend_call, BUDGET.spend_attempt):
        with pytest.raises(StateError, match="not known"):
            writer.commit_now(lambda tx, spend=spend: spend(tx, "nobody"))  # type: ignore[misc]
