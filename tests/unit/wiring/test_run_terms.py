"""Making runs costs no budget, so it must not fill the disk: terms are bounded, and unused runs are forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palyra.config.schema import Config
from palyra.errors import Reason, Rejected
from palyra.journal.store import JournalStore
from palyra.model.call import Door
from palyra.wiring import run_terms
from palyra.wiring.run_terms import MAX_BYTES, RunTerms, Terms
from tests.journaling import NOW, audit_home, closing, open_store, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import tampering

MINE = Terms(run_id=ulid(1), principal="agent:demo", workspace="/w", created_unix_ms=NOW)


@pytest.fixture
def kept(home, monkeypatch):
    monkeypatch.setattr(run_terms, "MAX_UNUSED", 3)
    writer, store = open_store(home)
    yield RunTerms(writer, now_unix_ms=lambda: NOW), store
    writer.close()


def made(number: int, **changed) -> Terms:
    return replace(MINE, run_id=ulid(number), created_unix_ms=NOW + number, **changed)


@promise("daemon.bounded-memory")
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


@promise("daemon.bounded-memory")
def test_terms_have_a_bound(kept):
    terms, _ = kept
    large = made(1, narrowing={"allowed_tools": ["x" * 1000] * (MAX_BYTES // 1000 + 1)})
    with pytest.raises(Rejected) as refused:
        asyncio.run(terms.keep(large))
    assert (refused.value.reason, terms.find(ulid(1))) == (Reason.BAD_ARGUMENTS, None)


# ── what somebody does to the rows ──

EDITS = {
    "no narrowing any more": "UPDATE run_terms SET terms = CAST(replace(CAST(terms AS TEXT), '\"c\"', 'null') AS BLOB)",
    "another workspace": "UPDATE run_terms SET workspace = '/'",
    "another day": "UPDATE run_terms SET created_unix_ms = 1",
    "given to another": "UPDATE run_terms SET principal = 'agent:other'",
    "terms of an older version": "UPDATE run_terms SET terms = CAST('{}' AS BLOB)",
    "gone": "DELETE FROM run_terms",
    "reopened": "UPDATE run_terms SET ended_unix_ms = NULL",
    "ended at another time": "UPDATE run_terms SET ended_unix_ms = 1",
}


async def called(terms: RunTerms, store: JournalStore) -> None:
    """With what the run's terms say at that moment."""
    found, call_id = terms.find(ulid(1)), ulid()
    run = run_spec(ulid(1)) if found is None else found.run(Config(), door=Door.HTTP).record
    await store.open_call(opening(call_id, run))
    await store.close_call(closing(call_id, run))


def findings(store: JournalStore) -> list[str]:
    return [one.detail for one in audit_home(store._writer.home).findings]


@promise("journal.run-terms")
@pytest.mark.parametrize("edit", EDITS)
def test_terms_of_a_run_that_somebody_changed_are_found(kept, edit):
    terms, store = kept

    async def story():
        assert await terms.keep(made(1, tier="c", workspace="/w"))
        await called(terms, store)
        ended = await terms.end(ulid(1), by="agent:demo")
        assert ended == await terms.end(ulid(1), by="agent:demo"), "again, it changes nothing"

    asyncio.run(story())
    assert findings(store) == []
    with tampering(store._writer.home) as other:
        other.execute(EDITS[edit])
    named = {"reopened": "ended_unix_ms", "ended at another time": "ended_unix_ms"}.get(edit, "terms")
    named = "terms, ended_unix_ms" if edit in ("gone", "given to another") else named
    assert findings(store) == [f"The row of run {ulid(1)} differs from its entries: {named}."]


@promise("journal.run-terms")
@pytest.mark.parametrize("edit", ["reopened", "ended at another time", "gone"])
def test_a_run_that_calls_alone_named_can_be_ended_and_is_not_reopened_unseen(kept, edit):
    terms, store = kept

    async def story():
        assert await terms.end_begun(ulid(1), by="user:operator") is None, "nobody began it"
        await called(terms, store)
        assert await terms.end(ulid(1), by="agent:demo") is None, "nobody made it"
        ended = await terms.end_begun(ulid(1), by="user:operator")
        assert (ended.ended_unix_ms, ended.workspace, ended.principal) == (NOW, "/workspace", "agent:demo")
        assert ended == await terms.end_begun(ulid(1), by="user:other"), "again, it changes nothing"
        with pytest.raises(Rejected, match="This run has ended"):
            terms.check_goes_on(ulid(1))
        for looks_new in (False, True):  # whoever held the run before it was ended: a session, another process
            late = replace(opening(ulid(), run_spec(ulid(1))), run_looks_new=looks_new)
            with pytest.raises(Rejected, match="This run has ended"):
                await store.open_call(late)
        terms.check_goes_on(ulid(2))

    asyncio.run(story())
    assert [b'"act":"run.ended"' in entry.body for entry in store.tail(9)] == [False, False, True]
    assert findings(store) == []
    with tampering(store._writer.home) as other:
        other.execute(EDITS[edit])
    assert findings(store) == [f"The row of run {ulid(1)} differs from its entries: ended_unix_ms."]


@promise("journal.run-terms")
def test_terms_that_were_changed_for_one_call_and_put_back_are_found(kept):
    terms, store = kept
    asyncio.run(terms.keep(made(1)))
    asyncio.run(called(terms, store))
    for workspace in ("/elsewhere", "/w"):
        with tampering(store._writer.home) as other:
            other.execute("UPDATE run_terms SET workspace = ?", (workspace,))
        asyncio.run(called(terms, store))
    assert findings(store) == [f"Entry {index} gives other terms for run {ulid(1)} than before." for index in (2, 4)]


def test_runs_that_an_older_version_made_and_those_that_nobody_used_go_on_verifying(kept):
    terms, store = kept
    asyncio.run(terms.keep(made(1)))
    asyncio.run(terms.keep(made(2)))
    with tampering(store._writer.home) as other:
        other.execute("UPDATE run_terms SET terms = CAST('{}' AS BLOB) WHERE run_id = ?", (ulid(1),))
    asyncio.run(called(terms, store))
    asyncio.run(terms.end(ulid(2), by="agent:demo"))
    assert [entry.index for entry in store.tail(9)] == [0, 1], "nobody fills the journal with runs that have no call"
    assert findings(store) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_run_that_was_forgotten_before_its_first_call_came_takes_none(kept, again):
    """It waited for a person, and an agent made runs meanwhile: the journal told of terms that were nowhere. Or of two,
    where the same id was made again and used."""
    terms, store = kept

    async def story():
        assert await terms.keep(made(1))
        waiting = terms.find(ulid(1)).run(Config(), door=Door.HTTP).record
        for number in range(2, 6):
            assert await terms.keep(made(number))
        if again:
            assert await terms.keep(made(1, tier="c"))
            await called(terms, store)
        with pytest.raises(Rejected) as refused:
            await store.open_call(opening(ulid(50), waiting))
        assert refused.value.reason is Reason.BAD_ARGUMENTS

    asyncio.run(story())
    assert len(store.tail(9)) == (2 if again else 0)
    assert findings(store) == []


def test_the_end_of_a_run_whose_id_an_operator_used_for_another_verifies(kept):
    terms, store = kept

    async def story():
        assert await terms.keep(made(1))
        others = run_spec(ulid(1), principal="agent:other")
        await store.open_call(opening(ulid(50), others))
        await store.close_call(closing(ulid(50), others))
        assert (await terms.end(ulid(1), by="agent:demo")).ended_unix_ms == NOW

    asyncio.run(story())
    assert findings(store) == []


def test_a_run_whose_id_somebody_else_had_made_before_can_be_ended_by_an_operator(kept):
    """Their terms were marked, `palyra runs end` said that it was done, and the run took calls on and on."""
    terms, store = kept
    run = run_spec(ulid(1), principal="agent:other")

    async def story():
        assert await terms.keep(made(1))
        await store.open_call(opening(ulid(50), run))
        await store.close_call(closing(ulid(50), run))
        ended = await terms.end_begun(ulid(1), by="user:operator")
        assert (ended.principal, ended.ended_unix_ms) == ("agent:other", NOW)
        assert ended == await terms.end_begun(ulid(1), by="user:operator"), "again, it changes nothing"
        with pytest.raises(Rejected, match="This run has ended"):
            await store.open_call(opening(ulid(51), run))

    asyncio.run(story())
    assert findings(store) == []


def test_an_entry_tells_nothing_by_which_a_workspace_could_be_guessed(kept):
    """Two runs of the same words have different digests."""
    terms, _ = kept
    asyncio.run(terms.keep(made(1)))
    asyncio.run(terms.keep(replace(made(2), created_unix_ms=made(1).created_unix_ms)))
    one, other = (terms.find(ulid(number)) for number in (1, 2))
    assert one.nonce != other.nonce
    assert len({one.sha256, other.sha256, None}) == 3
