"""The journal for operators: pages, calls by their place, proofs, the audit; only what an entry vouches for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.errors import StateError
from palyra.journal.proof import check_proof
from palyra.journal.search import Question
from palyra.journal.store import JournalStore
from palyra.state.search import indexed_until
from palyra.state.writer import Writer
from palyra.wiring import journal_desk
from palyra.wiring.call_desk import CallDesk
from palyra.wiring.journal_desk import JournalDesk, report_json
from tests.journaling import attested, closing, many_acts, open_store, opening, run_spec, ulid

RUN = run_spec(ulid(), principal="agent:alice")
CALLS = [ulid() for _ in range(5)]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Four calls that ended and one under way, then acts."""
    writer, store = open_store(tmp_path / "home")

    async def scenario(store: JournalStore) -> None:
        for number, call_id in enumerate(CALLS):
            if number == 1:
                await store.close_call(attested(writer, closing(call_id, RUN, opened=False)))
                continue
            await store.open_call(opening(call_id, RUN))
            if number != 4:
                await store.close_call(attested(writer, closing(call_id, RUN)))

    asyncio.run(scenario(store))
    many_acts(writer, 3, "policy")
    yield writer
    writer.close()


@pytest.fixture
def desk(writer: Writer) -> JournalDesk:
    return JournalDesk(writer, is_alive=lambda owner: True)


def page(desk: JournalDesk, count: int, before: int | None = None, **asked: str) -> tuple[list[int], int | None]:
    found = asyncio.run(desk.page(Question(**asked), count=count, before=before))
    return [entry.index for entry in found.entries], found.next


def test_pages_go_from_the_newest_to_the_first(desk):
    assert page(desk, 5) == ([10, 9, 8, 7, 6], 6)
    assert page(desk, 100, 6) == ([5, 4, 3, 2, 1, 0], None)
    assert page(desk, 2, kind="act") == ([10, 9], 9)


def test_the_index_follows_when_it_lags(desk, writer, monkeypatch):
    assert indexed_until(writer.rows) == 0
    monkeypatch.setattr(journal_desk, "BEHIND", 1)
    assert page(desk, 10, status="refused")[0] == [2]
    assert indexed_until(writer.rows) == 11


def test_calls_are_listed_by_their_place_and_those_under_way_apart(desk, writer):
    calls = CallDesk(writer, desk)
    ended, following = asyncio.run(calls.ended(Question(), count=3))
    assert [line.call_id for line in ended] == [CALLS[3], CALLS[2], CALLS[1]]
    assert following == ended[-1].index
    rest, end = asyncio.run(calls.ended(Question(), count=3, before=following))
    assert ([line.call_id for line in rest], end) == ([CALLS[0]], None)
    assert [line.call_id for line in calls.under_way()] == [CALLS[4]]
    assert {line.call_id for line in calls.of_run(RUN.run_id, count=10)} == set(CALLS)


def test_a_proof_holds_and_there_is_none_of_what_is_not_there(desk, writer):
    proof = desk.proof(CALLS[0])
    assert proof is not None
    assert check_proof(proof, writer.home.verifier) == ()
    assert desk.proof(ulid()) is None


def test_a_call_whose_row_was_edited_is_not_shown(desk, writer):
    assert desk.call(CALLS[0]) is not None
    writer.commit_now(lambda tx: tx.execute("UPDATE calls SET tool = 'other' WHERE call_id = ?", (CALLS[0],)))
    with pytest.raises(StateError):
        desk.call(CALLS[0])


def test_the_audit_goes_on_beside_others_and_tells_all_of_it(desk):
    audited = asyncio.run(desk.verify(every_signature=True))
    told = report_json(audited.report, audited.anchors)
    assert (told["ok"], told["entries"], told["open_calls"], told["findings"]) == (True, 11, 1, [])
