"""Questions to the journal: filters, pages, words; an index that follows and cannot lie."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.journal.chain import act_draft
from palyra.journal.entry import parse_entry
from palyra.journal.lookup import TREE_SIZE, Lookup
from palyra.journal.search import Page, Question, write_sql
from palyra.journal.store import JournalStore
from palyra.model.record import Entry
from palyra.state.sealed import SealedBodies
from palyra.state.search import catch_up, forget, indexed_until, search
from palyra.state.segments import drop_segments, seal_entries
from palyra.state.writer import Writer
from tests.journaling import NOW, audit_home, closing, many_acts, open_store, opening, run_spec, ulid
from tests.stores import on_sqlite, tampering

HOUR = 3600 * 1000
RUNS = {name: run_spec(ulid(), principal=f"agent:{name}") for name in ("alice", "bob")}


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    """Twelve calls of two principals, one an hour; every third refused; two acts at the end."""
    writer, store = open_store(home)

    async def scenario(store: JournalStore) -> None:
        for number in range(12):
            run, at, call_id = RUNS["alice" if number % 2 else "bob"], NOW + number * HOUR, ulid()
            if number % 3 == 0:
                refusal = closing(call_id, run, opened=False)
                await store.close_call(replace(refusal, closed_unix_ms=at))
                continue
            await store.open_call(replace(opening(call_id, run), opened_unix_ms=at))
            await store.close_call(replace(closing(call_id, run), closed_unix_ms=at + 1))

    asyncio.run(scenario(store))
    many_acts(writer, 2, "policy")
    yield writer
    writer.close()


def ask(writer: Writer, count: int = 100, before: int | None = None, **asked: object) -> Page:
    lookup = Lookup(writer.rows, writer.home.verifier, SealedBodies(writer.rows, writer.home.segments).body)
    return search(writer.rows, Question(**asked), lookup=lookup, count=count, before=before)


def told(page: Page) -> list[tuple[object, ...]]:
    views = [parse_entry(entry.body) for entry in page.entries]
    return [(view.index, view.predicate.get("principal"), view.predicate.get("status")) for view in views]


QUESTIONS: list[dict] = [
    {"principal": "agent:alice"},
    {"run_id": RUNS["bob"].run_id},
    {"tool": "palyra.echo"},
    {"tool": "policy.0"},
    {"status": "refused"},
    {"status": "completed", "principal": "agent:bob"},
    {"reason": "POLICY_DENIED"},
    {"kind": "act"},
    {"kind": "intent"},
    {"text": "alice"},
    {"text": "POLICY_DENIED bob"},
    {"text": "palyra.echo refused"},
    {"text": "operator"},
    {"text": '" OR 1=1 -- *'},
    {"since_unix_ms": NOW + 3 * HOUR},
    {"until_unix_ms": NOW + 3 * HOUR},
    {"since_unix_ms": NOW + 2 * HOUR, "until_unix_ms": NOW + 4 * HOUR + 1},
    {"since_unix_ms": NOW + 2 * HOUR, "status": "refused", "text": "bob"},
    {"principal": "agent:nobody"},
    {"since_unix_ms": NOW + 99 * HOUR},
]


def test_the_index_answers_as_reading_every_entry_does(writer: Writer) -> None:
    plain = [ask(writer, **asked) for asked in QUESTIONS]
    assert indexed_until(writer.rows) == 0
    assert catch_up(writer) == 22
    for asked, page in zip(QUESTIONS, plain, strict=True):
        assert ask(writer, **asked) == page, asked
        found = [entry.index for entry in page.entries]
        assert found == sorted(found, reverse=True), asked


@pytest.mark.parametrize("indexed", [False, True])
def test_pages_follow_each_other_without_gap_or_repeat(writer: Writer, indexed: bool) -> None:
    if indexed:
        catch_up(writer)
    for asked in QUESTIONS:
        assert in_pages(writer, asked) == list(ask(writer, **asked).entries), asked


def in_pages(writer: Writer, asked: dict) -> list[Entry]:
    entries: list[Entry] = []
    before = None
    for _ in range(20):
        page = ask(writer, count=3, before=before, **asked)
        entries += page.entries
        before = page.next
        if before is None:
            break
    return entries


def test_filters_tell_what_they_say(writer: Writer) -> None:
    catch_up(writer)
    refused = told(ask(writer, status="refused"))
    assert [row[1:] for row in refused] == [("agent:alice", "refused"), ("agent:bob", "refused")] * 2
    assert len(ask(writer, principal="agent:alice", kind="intent").entries) == 4
    (first,) = ask(writer, text="policy.1").entries
    assert parse_entry(first.body).predicate["act"] == "policy.1"
    hour = ask(writer, since_unix_ms=NOW + 4 * HOUR, until_unix_ms=NOW + 5 * HOUR)
    assert {parse_entry(entry.body).at_unix_ms for entry in hour.entries} == {NOW + 4 * HOUR, NOW + 4 * HOUR + 1}


def test_the_index_follows_what_came_since_and_a_clock_that_went_back(writer: Writer) -> None:
    catch_up(writer)
    many_acts(writer, 3, "later")  # at NOW, hours before the last call
    assert [row[0] for row in told(ask(writer, text="later"))] == [24, 23, 22]  # read, not indexed yet
    assert catch_up(writer) == 3
    early = ask(writer, until_unix_ms=NOW + 1, kind="act")
    assert [row[0] for row in told(early)] == [24, 23, 22, 21, 20]


def test_an_index_that_was_edited_shows_nothing_that_is_not_so(writer: Writer) -> None:
    catch_up(writer)
    with tampering(writer.home) as other:
        other.execute("UPDATE search SET principal = 'agent:alice', status = 'completed', at_unix_ms = 0")
    shown = told(ask(writer, principal="agent:alice", status="completed"))
    assert {row[1:] for row in shown} == {("agent:alice", "completed")}
    assert ask(writer, until_unix_ms=5).entries == ()
    forget(writer)
    assert indexed_until(writer.rows) == 0
    assert catch_up(writer) == 22
    assert len(ask(writer, status="refused").entries) == 4


@pytest.mark.parametrize("indexed", [False, True])
def test_an_act_about_somebody_is_not_shown_as_theirs(writer: Writer, indexed: bool) -> None:
    """What an act tells of others stood there for who did it, until the index came, or where its row was edited."""
    details = {"principal": "agent:alice", "tool": "palyra.echo", "status": "completed", "reason": "POLICY_DENIED"}
    draft = act_draft(act="approval.requested", actor="agent:bob", subject="approval/x", details=details)
    index, _ = writer.commit_now(lambda tx: tx.append(draft, at_unix_ms=NOW))
    if indexed:
        catch_up(writer)
        with tampering(writer.home) as other:
            sql = "UPDATE search SET principal = ?, tool = ?, status = ?, reason = ? WHERE idx = ?"
            other.execute(sql, (*details.values(), index))
    for name, value in details.items():
        assert index not in [entry.index for entry in ask(writer, **{name: value}).entries], name
    if not indexed:
        assert index in [entry.index for entry in ask(writer, principal="agent:bob", tool="approval.requested").entries]


@pytest.mark.parametrize("text", ["ü", "!!!", "\u200b", '"*"'])
def test_words_that_no_entry_can_have_find_nothing(writer: Writer, text: str) -> None:
    """They were left out of the question, which then asked for everything."""
    assert ask(writer, text=text) == Page((), None)
    catch_up(writer)
    assert ask(writer, text=text) == Page((), None)


def test_sealed_entries_are_found_too(writer: Writer) -> None:
    catch_up(writer)
    before = ask(writer, principal="agent:alice")
    seal_entries(writer, before_unix_ms=NOW + 6 * HOUR, at_unix_ms=NOW)
    assert ask(writer, principal="agent:alice") == before


def test_entries_sealed_before_anybody_asked_are_found_too(writer: Writer) -> None:
    """The index was made of what the database holds: whoever asked for the first time after that found nothing."""
    before = ask(writer, principal="agent:alice")
    seal_entries(writer, before_unix_ms=NOW + 6 * HOUR, at_unix_ms=NOW)
    catch_up(writer)
    assert ask(writer, principal="agent:alice") == before
    assert told(ask(writer, text="alice completed")) == [one for one in told(before) if one[2] == "completed"]


@on_sqlite
def test_acts_among_removed_entries_are_found_still_and_the_calls_leave_no_word(writer: Writer) -> None:
    """The words of removed entries stayed in the index, with their places: who had called what."""
    catch_up(writer)
    many_acts(writer, 2, "policy")
    seal_entries(writer, before_unix_ms=NOW + 24 * HOUR, at_unix_ms=NOW + 24 * HOUR)
    many_acts(writer, 600, "filler")
    catch_up(writer)
    before = ask(writer, count=1000, kind="act")
    assert len(ask(writer, text="workspace").entries) == 20
    drop_segments(writer, before_unix_ms=NOW + 24 * HOUR, at_unix_ms=NOW + 24 * HOUR)
    assert ask(writer, text="workspace").entries == ()
    assert ask(writer, count=1000, kind="act", before=before.entries[0].index + 1) == before
    left = b"".join(path.read_bytes() for path in writer.home.state.glob("palyra.db*") if path.suffix != ".db-shm")
    words = b"".join(row[0] for row in writer.rows("SELECT block FROM search_words_data"))
    assert (b"filler" in words, b"lice" in words) == (True, False)
    assert left.count(b"agent:alice") == 3  # the run's row, the index of those, and that row as it was when they went
    writer.commit_now(lambda tx: tx.execute("INSERT INTO search_words (search_words) VALUES ('integrity-check')"))
    assert audit_home(writer.home, every=True).findings == ()


def test_the_index_costs_the_journal_nothing(writer: Writer) -> None:
    size = writer.rows(TREE_SIZE)
    catch_up(writer)
    assert writer.rows(TREE_SIZE) == size
    assert audit_home(writer.home, every=True).findings == ()


@on_sqlite
@pytest.mark.parametrize(
    "question",
    [Question(principal="a"), Question(text="a b"), Question(since_unix_ms=1, until_unix_ms=2), Question(run_id="r")],
)
def test_no_question_reads_every_entry(writer: Writer, question: Question) -> None:
    catch_up(writer)
    sql, given = write_sql(question)
    plan = [row[3] for row in writer.rows(f"EXPLAIN QUERY PLAN {sql}", (*given, 99, 20))]
    assert not [step for step in plan if step.startswith(("SCAN s", "SCAN e", "USE TEMP B-TREE"))], plan
