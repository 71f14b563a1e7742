"""Making runs costs no budget, so it must not fill the disk: terms are bounded, and unused runs are forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palyra.errors import Reason, Rejected
from palyra.wiring import run_terms
from palyra.wiring.run_terms import MAX_BYTES, RunTerms, Terms
from tests.journaling import NOW, open_store, opening, run_spec, ulid

MINE = Terms(run_id=ulid(1), principal="agent:demo", workspace="/w", created_unix_ms=NOW)


@pytest.fixture
def kept(home, monkeypatch):
    monkeypatch.setattr(run_terms, "MAX_UNUSED", 3)
    writer, store = open_store(home)
    yield RunTerms(writer, now_unix_ms=lambda: NOW), store
    writer.close()


def made(number: int, **changed) -> Terms:
    return replace(MINE, run_id=ulid(number), created_unix_ms=NOW + number, **changed)


def test_runs_that_nobody_used_are_forgotten_and_used_ones_are_not(kept):
    terms, store = kept

    async def story():
        assert await terms.keep(made(1))
        await store.open_call(opening(ulid(50), run_spec(ulid(1))))
        assert await terms.keep(made(2, principal="agent:other"))
        for number in range(3, 9):
            assert await terms.keep(made(number))

    asyncio.run(story())
    there = [number for number in range(1, 9) if terms.find(ulid(number)) is not None]
    assert there == [1, 2, 6, 7, 8]


def test_terms_have_a_bound(kept):
    terms, _ = kept
    large = made(1, narrowing={"allowed_tools": ["x" * 1000] * (MAX_BYTES // 1000 + 1)})
    with pytest.raises(Rejected) as refused:
        asyncio.run(terms.keep(large))
    assert (refused.value.reason, terms.find(ulid(1))) == (Reason.BAD_ARGUMENTS, None)
