"""Figures of the last hours: the same from the index, from the entries it lacks, and from both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.journal.store import JournalStore
from palyra.state.search import catch_up
from palyra.state.writer import Writer
from palyra.wiring import figures
from palyra.wiring.figures import ENDINGS, HOUR_MS, count_figures, read_figures
from tests.journaling import NOW, closing, open_store, opening, run_spec, ulid

BEGIN = NOW - NOW % HOUR_MS
RUN = run_spec(ulid(), principal="agent:alice")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """One call an hour for thirty hours, every third refused."""
    writer, store = open_store(tmp_path / "home")

    async def scenario(store: JournalStore) -> None:
        for number in range(30):
            at, call_id = BEGIN + number * HOUR_MS, ulid()
            if number % 3 == 0:
                await store.close_call(replace(closing(call_id, RUN, opened=False), closed_unix_ms=at))
                continue
            await store.open_call(replace(opening(call_id, RUN), opened_unix_ms=at))
            await store.close_call(replace(closing(call_id, RUN), closed_unix_ms=at + 1))

    asyncio.run(scenario(store))
    yield writer
    writer.close()


def counted(writer: Writer, hours: int = 24) -> figures.Figures:
    return count_figures(writer.rows, now_unix_ms=BEGIN + 29 * HOUR_MS + 5, hours=hours)


def test_the_last_day_by_the_hour_without_gaps(writer):
    found = counted(writer)
    assert [hour.begins_unix_ms for hour in found.hours] == [BEGIN + n * HOUR_MS for n in range(6, 30)]
    assert [hour.counts for hour in found.hours[:3]] == [(0, 1, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0)]
    assert dict(found.endings) == {"completed": 16, "refused": 8}
    assert found.reasons == (("POLICY_DENIED", 8),)
    assert found.principals == (("agent:alice", 24),)
    assert found.whole


def test_it_does_not_matter_how_far_the_index_has_come(writer):
    without = counted(writer)
    catch_up(writer, batches=1, size=20)
    partly = counted(writer)
    catch_up(writer)
    assert without == partly == counted(writer)


def test_a_long_day_is_counted_from_its_newest_end_and_says_so(writer, monkeypatch):
    catch_up(writer)
    monkeypatch.setattr(figures, "MOST_ENTRIES", 10)
    found = counted(writer)
    assert not found.whole
    assert 0 < sum(count for _, count in found.endings) < 24


def test_calls_of_a_clock_that_was_ahead_count_as_of_now(writer):
    found = count_figures(writer.rows, now_unix_ms=BEGIN + 10 * HOUR_MS, hours=24)
    assert sum(found.hours[-1].counts) == 20
    assert found.as_json()["hours"][-1].keys() == {"begins_at_unix_ms", *ENDINGS}


def test_an_empty_journal_has_empty_hours(tmp_path):
    writer, _ = open_store(tmp_path / "empty")
    try:
        found = asyncio.run(read_figures(writer, now_unix_ms=NOW, hours=3))
    finally:
        writer.close()
    assert [hour.counts for hour in found.hours] == [(0, 0, 0, 0)] * 3
    assert found.whole
