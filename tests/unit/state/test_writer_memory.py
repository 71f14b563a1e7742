"""What the writer knows without reading it again: the head and the runs' keys, until anybody else has written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import Reason, Rejected, StateError
from palyra.journal.store import JournalStore
from palyra.state import head as head_module
from palyra.state.retention import redact_call
from palyra.state.sqlite import COMMITS_BEFORE_GROWTH, SqliteDatabase
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from tests.journaling import NOW, act, audit_home, closing, open_store, opening, run_spec, ulid

RUN = run_spec(ulid())


@pytest.fixture(params=["SQLite is asked", "the log is watched"])
def opened(home: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Writer, JournalStore]]:
    """As a process begins, and as it goes on when it has settled in."""
    writer, store = open_store(home)
    if request.param == "the log is watched":
        watch(writer, store)
    yield writer, store
    writer.close()


def watch(writer: Writer, store: JournalStore) -> None:
    database = writer.database
    assert isinstance(database, SqliteDatabase)
    writer.commit_now(lambda _: None)  # there is no index before the first transaction
    assert database._watch_log().is_seen


def whole_call(store: JournalStore, run: Any = RUN) -> str:
    call_id = ulid()

    async def both() -> None:
        await store.open_call(opening(call_id, run))
        await store.close_call(closing(call_id, run))

    asyncio.run(both())
    return call_id


def traced(writer: Writer) -> list[str]:
    said: list[str] = []
    writer.database.connection.set_trace_callback(said.append)  # type: ignore[attr-defined]
    return said


def key_of(writer: Writer) -> list[tuple[Any, ...]]:
    return writer.rows("SELECT key FROM run_keys WHERE run_id = ?", (RUN.run_id,))


def test_whoever_writes_alone_reads_neither_the_head_nor_a_key_again(opened: tuple[Writer, JournalStore]) -> None:
    writer, store = opened
    whole_call(store)
    said = traced(writer)
    whole_call(store)
    assert [sql for sql in said if "FROM head" in sql or "FROM run_keys" in sql] == []
    assert len([sql for sql in said if sql.startswith("UPDATE runs")]) == 2, "one for each entry"
    assert audit_home(writer.home).findings == ()


def test_whoever_writes_alone_for_long_asks_nobody_whether_others_wrote(home: Path) -> None:
    writer, store = open_store(home)
    watch(writer, store)
    whole_call(store)
    said = traced(writer)
    whole_call(store)
    assert [sql for sql in said if "data_version" in sql] == []
    writer.commit_now(lambda _: None)  # which writes nothing, so that it cannot be told whose the last commit is
    whole_call(store)
    assert len([sql for sql in said if "data_version" in sql]) == 1
    writer.close()


@pytest.mark.parametrize("writes", [True, False])
def test_a_stranger_who_commits_right_behind_a_commit_is_not_taken_for_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """Between a commit and the look at what it left in the log's index, by somebody who keeps no lock of ours. Behind
    one that wrote nothing, of work that was refused, theirs was the one commit more that ours would have been."""
    writer, store = open_store(home)
    watch(writer, store)
    whole_call(store)
    database = writer.database
    assert isinstance(database, SqliteDatabase)
    know_ours = database._know_ours

    def too_late(*, wrote: bool) -> None:
        with sqlite3.connect(home / "state" / "palyra.db") as other:
            other.execute("UPDATE head SET frontier = zeroblob(32)")
        other.close()
        know_ours(wrote=wrote)

    monkeypatch.setattr(database, "_know_ours", too_late)
    writer.commit_now(append if writes else lambda _: None)
    monkeypatch.undo()
    with pytest.raises(StateError, match="signed head"):
        whole_call(store)
    writer.close()


def test_a_process_that_goes_on_watches_the_log(home: Path) -> None:
    writer, _ = open_store(home)

    async def some_commits() -> None:
        for _ in range(COMMITS_BEFORE_GROWTH + 1):
            await writer.commit(append)
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(some_commits())
    writer.commit_now(append)
    said = traced(writer)
    writer.commit_now(append)
    assert [sql for sql in said if "data_version" in sql] == []
    writer.close()


def test_two_writers_that_take_turns_go_on_from_each_others_head(opened: tuple[Writer, JournalStore]) -> None:
    writer, store = opened
    other, other_store = open_store(writer.home.root)
    for _ in range(3):
        whole_call(store)
        whole_call(other_store)
    other.close()
    assert writer.rows("SELECT max(size) FROM checkpoints") == [(12,)]
    assert audit_home(writer.home).findings == ()


def test_a_key_that_was_deleted_elsewhere_seals_nothing_more(opened: tuple[Writer, JournalStore]) -> None:
    writer, store = opened
    call_id = whole_call(store)
    (before,) = key_of(writer)
    other = Writer.open(writer.home.root)
    redact_call(other, call_id, actor="user:operator", reason="asked to", at_unix_ms=NOW)
    other.close()
    assert key_of(writer) == []
    whole_call(store)
    (after,) = key_of(writer)
    assert after != before
    assert audit_home(writer.home).findings == ()


def test_a_key_that_was_deleted_by_this_very_process_seals_nothing_more(opened: tuple[Writer, JournalStore]) -> None:
    writer, store = opened
    call_id = whole_call(store)
    before = key_of(writer)
    redact_call(writer, call_id, actor="user:operator", reason="asked to", at_unix_ms=NOW)
    whole_call(store)
    assert key_of(writer) != before
    assert audit_home(writer.home).findings == ()


def test_a_key_whose_making_was_undone_is_not_remembered(opened: tuple[Writer, JournalStore]) -> None:
    writer, store = opened

    def refused(tx: Transaction) -> None:
        store._open(tx, opening(ulid(), RUN))
        raise Rejected(Reason.BUDGET_SPENT, "No more.")

    async def together() -> None:
        await asyncio.gather(
            writer.commit(refused), writer.commit(refused), writer.commit(lambda tx: tx.append(act(), at_unix_ms=NOW)),
            return_exceptions=True,
        )  # fmt: skip

    with pytest.raises(Rejected):
        writer.commit_now(refused)
    asyncio.run(together())
    assert (key_of(writer), writer._head.run_keys) == ([], {})
    whole_call(store)
    assert len(key_of(writer)) == 1
    assert audit_home(writer.home).findings == ()


def test_a_key_whose_commit_had_to_wait_is_not_remembered(
    opened: tuple[Writer, JournalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, store = opened
    commit, tries = writer.database.commit, iter([sqlite3.SQLITE_BUSY])

    def busy_once(**grown: int) -> None:
        for code in tries:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = code
            raise error
        commit(**grown)

    monkeypatch.setattr(writer.database, "commit", busy_once)
    whole_call(store)
    assert key_of(writer) == [(writer._head.run_keys[RUN.run_id],)]
    assert audit_home(writer.home).findings == ()


def test_the_memory_of_keys_is_bounded(opened: tuple[Writer, JournalStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "MAX_RUN_KEYS", 4)
    writer, store = opened
    for _ in range(9):
        whole_call(store, run_spec(ulid()))
    assert len(writer._head.run_keys) <= 4
    assert audit_home(writer.home).findings == ()


def test_a_head_changed_between_two_commits_of_a_busy_writer_is_noticed(opened: tuple[Writer, JournalStore]) -> None:
    writer, store = opened
    whole_call(store)
    other = sqlite3.connect(writer.home.database)
    with other:
        other.execute("UPDATE head SET frontier = zeroblob(32)")
    other.close()
    with pytest.raises(StateError, match="signed head"):
        whole_call(store)


def together(writer: Writer, *works: Any) -> list[Any]:
    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(writer.commit(work) for work in works), return_exceptions=True)

    return asyncio.run(all_at_once())


def append(tx: Transaction) -> int:
    return tx.append(act(), at_unix_ms=NOW)


def refuse(tx: Transaction) -> int:
    tx.append(act("must.vanish"), at_unix_ms=NOW)
    raise Rejected(Reason.BUDGET_SPENT, "No more.")


def test_savepoints_are_made_only_where_one_is_refused(opened: tuple[Writer, JournalStore]) -> None:
    writer, _ = opened
    said = traced(writer)
    together(writer, append, append, append)
    assert [sql for sql in said if "SAVEPOINT" in sql] == []
    answers = together(writer, append, refuse, append, refuse, append)
    assert [isinstance(answer, Rejected) for answer in answers] == [False, True, False, True, False]
    assert [sql for sql in said if sql.startswith("SAVEPOINT")] != []
    assert writer.rows("SELECT count(*) FROM entries WHERE body LIKE '%must.vanish%'") == [(0,)]
    assert [index for index, _ in writer.rows("SELECT idx, 1 FROM entries ORDER BY idx")] == list(range(6))
    assert audit_home(writer.home).findings == ()


def test_a_head_changed_while_others_work_is_done_again_is_noticed(opened: tuple[Writer, JournalStore]) -> None:
    writer, _ = opened
    together(writer, append, append, append)
    begin_again = writer.database.begin_again

    def while_somebody_else_writes() -> None:
        connection = writer.database.connection  # type: ignore[attr-defined]
        connection.execute("ROLLBACK")
        with sqlite3.connect(writer.home.database) as other:
            other.execute("UPDATE head SET frontier = zeroblob(32)")
        other.close()
        connection.execute("BEGIN IMMEDIATE")

    writer.database.begin_again = while_somebody_else_writes  # type: ignore[method-assign]
    answers = together(writer, append, append, refuse)
    writer.database.begin_again = begin_again  # type: ignore[method-assign]
    assert [type(answer) for answer in answers] == [StateError, StateError, StateError]
    assert writer.rows("SELECT count(*) FROM entries") == [(3,)]
