"""What is only written waits for no answer; what was refused of it is found by its own name, and undone alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from palyra.budget.store import BudgetStore
from palyra.cluster import sending
from palyra.cluster.opening import open_writer
from palyra.errors import StateError
from palyra.journal.store import JournalStore
from palyra.state.writer import Writer
from tests.journaling import NOW, act, audit_home, closing, opening, run_spec, ulid
from tests.postgres import url_of

TOO_LARGE = b"x" * 9000
"""More than a server keeps back: its answers come by themselves."""


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    made = open_writer(url_of(home), home)
    yield made
    made.close()


def tamper(home: Path, sql: str) -> None:
    with psycopg.connect(url_of(home), autocommit=True) as other:
        other.execute(sql)


def refused(tx: Any) -> None:
    tx._database.send("INSERT INTO run_keys VALUES (?, ?)", ("twice", b"k"))
    tx._database.send("INSERT INTO run_keys VALUES (?, ?)", ("twice", b"k"))


def test_a_call_is_written_in_few_journeys(writer: Writer, monkeypatch: pytest.MonkeyPatch):
    """Each holds every daemon's turn. A begin, the run, its key, the call, a commit; and the same to close it."""
    store, run = JournalStore(writer, BudgetStore()), run_spec(ulid())
    journeys: list[object] = []
    bring = sending.Sending._bring
    monkeypatch.setattr(sending.Sending, "_bring", lambda *given: (journeys.append(given), bring(*given))[1])

    async def work() -> list[int]:
        seen = []
        for call in (ulid(), ulid()):
            for write in (store.open_call(opening(call, run)), store.close_call(closing(call, run))):
                journeys.clear()
                await write
                seen.append(len(journeys))
        return seen[2:]  # the first makes the run

    assert asyncio.run(work()) == [4, 4]
    assert audit_home(writer.home).findings == ()


def test_an_entry_whose_place_was_taken_behind_our_back_stops_the_writer(writer: Writer, home: Path):
    writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    tamper(home, "INSERT INTO entries SELECT idx + 1, leaf_hash, body FROM entries")
    with pytest.raises(StateError, match="entry 1 is there already"):
        writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    with pytest.raises(StateError):
        writer.commit_now(lambda tx: None)


@pytest.mark.parametrize("behind", [b"", TOO_LARGE], ids=["", "whose answer came by itself"])
def test_a_refused_statement_undoes_its_own_work_alone(writer: Writer, behind: bytes):
    def bad(tx: Any) -> None:
        tx.append(act(), at_unix_ms=NOW)
        refused(tx)
        if behind:
            tx._database.send("SELECT ?::bytea FROM generate_series(1, 20)", (behind,))
            for _ in range(50):
                tx._database.send("SELECT ?::bytea", (behind,))

    def good(tx: Any) -> int:
        index: int = tx.append(act(), at_unix_ms=NOW)
        return index

    async def together() -> list[Any]:
        return await asyncio.gather(*map(writer.commit, (good, bad, good)), return_exceptions=True)

    first, second, third = asyncio.run(together())
    assert isinstance(second, psycopg.errors.UniqueViolation)
    assert sorted((first[0], third[0])) == [0, 1]
    with pytest.raises(psycopg.errors.UniqueViolation):
        writer.commit_now(bad)
    assert writer.commit_now(good)[0] == 2
    assert writer.rows("SELECT count(*) FROM run_keys") == [(0,)]
    assert audit_home(writer.home).findings == ()


def test_what_came_with_the_turn_is_good_only_until_something_is_written(writer: Writer):
    def work(tx: Any) -> list[Any]:
        question = "SELECT count(*) FROM run_keys"
        seen = [tx.rows(question)]
        tx._database.send("INSERT INTO run_keys VALUES (?, ?)", ("one", b"k"))
        return [*seen, tx.rows(question)]

    assert writer.commit_now(work)[0] == [[(0,)], [(1,)]]
