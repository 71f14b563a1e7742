"""One writer for many: grouped, undone one by one, stopped for good when the disk fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import Reason, Rejected, StateError
from palyra.journal.checkpoint import open_checkpoint
from palyra.journal.lookup import TREE_SIZE
from palyra.model.record import Receipt
from palyra.state import reserve, sharing
from palyra.state import sqlite as sqlite_module
from palyra.state import writer as writer_module
from palyra.state.lock import FileLock
from palyra.state.schema import HEAD_EVERY
from palyra.state.transaction import Transaction
from palyra.state.trouble import NoRoom, no_room
from palyra.state.writer import Writer
from palyra.wiring.owners import ProcessOwners
from tests.journaling import NOW, act, audit_home
from tests.promises import promise


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    opened = Writer.open(home)
    yield opened
    opened.close()


def append(tx: Transaction) -> int:
    return tx.append(act(), at_unix_ms=NOW)


def refuse(tx: Transaction) -> int:
    tx.append(act("must.vanish"), at_unix_ms=NOW)
    raise Rejected(Reason.BUDGET_SPENT, "No more.")


def count(writer: Writer, table: str = "entries") -> int:
    number: int = writer.rows(f"SELECT count(*) FROM {table}")[0][0]
    return number


# ── group commit ─────────────────────────────────────────────────────────────


def test_what_waits_goes_into_one_commit_under_one_checkpoint(writer: Writer) -> None:
    async def scenario() -> list[tuple[int, Any]]:
        return await asyncio.gather(*(writer.commit(append) for _ in range(50)))

    async def twice() -> list[tuple[int, Any]]:
        return [*await scenario(), *await scenario()]

    answers = asyncio.run(twice())
    assert [value for value, _ in answers] == list(range(100))
    assert [receipt.index for _, receipt in answers] == list(range(100))
    sizes = [open_checkpoint(receipt.checkpoint, writer.home.verifier).size for _, receipt in answers]
    assert sizes == [1] + [50] * 49 + [100] * 50, "the very first knew of no other; from then on they go together"
    assert count(writer, "checkpoints") == 3
    assert audit_home(writer.home).findings == ()


def test_whoever_comes_alone_is_done_at_once(writer: Writer) -> None:
    async def scenario() -> list[bool]:
        done = []
        for _ in range(3):
            future = writer.commit(append)
            done.append(future.done())
            await future
            await asyncio.sleep(0)
        return done

    assert asyncio.run(scenario()) == [True, True, True]


def test_callers_that_keep_coming_in_one_turn_do_not_each_commit_alone(writer: Writer) -> None:
    async def scenario() -> list[bool]:
        futures = [writer.commit(append) for _ in range(5)]
        done = [future.done() for future in futures]
        await asyncio.gather(*futures)
        return done

    assert asyncio.run(scenario()) == [True, False, False, False, False]
    assert count(writer, "checkpoints") == 2


def test_the_first_of_a_turn_has_its_answer_without_a_future_and_the_others_share(writer: Writer) -> None:
    async def one() -> bool:
        return writer.commit_first(append) is not None

    async def scenario() -> tuple[list[bool], Any]:
        came = await asyncio.gather(*(one() for _ in range(3)))
        with pytest.raises(Rejected):
            writer.commit_first(refuse)
        await asyncio.sleep(0)
        waits = writer.commit(append), writer.commit(append)
        assert writer.commit_first(append) is None, "somebody waits already"
        return came, await asyncio.gather(*waits)

    came, shared = asyncio.run(scenario())
    assert (came, [value for value, _ in shared]) == ([True, False, False], [1, 2])
    assert audit_home(writer.home).findings == ()


def test_with_a_database_far_away_nobody_goes_first(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose answer is lost must be found waiting."""
    monkeypatch.setattr(writer.database, "is_far", True)

    async def scenario() -> Any:
        return writer.commit_first(append)

    assert asyncio.run(scenario()) is None


def test_a_refusal_undoes_its_own_work_and_no_other(writer: Writer) -> None:
    async def scenario() -> list[Any]:
        works = [append, refuse, append, lambda tx: next(iter([])), lambda tx: tx.execute("NONSENSE"), append]
        return await asyncio.gather(*(writer.commit(work) for work in works), return_exceptions=True)

    answers = asyncio.run(scenario())
    kinds = [type(answer) for answer in answers]
    assert kinds == [tuple, Rejected, tuple, RuntimeError, sqlite3.OperationalError, tuple]
    assert [answers[at][1].index for at in (0, 2, 5)] == [0, 1, 2]
    assert count(writer) == 3
    assert audit_home(writer.home).findings == ()


def test_a_refusal_alone_is_undone_and_the_next_work_goes_on(writer: Writer) -> None:
    def refused(tx: Transaction) -> None:
        tx.append(act(), at_unix_ms=1)
        raise KeyError("no")

    async def scenario() -> None:
        with pytest.raises(KeyError):
            writer.commit_alone(refused)
        with pytest.raises(KeyError):
            await writer.commit(refused)
        done = writer.commit_alone(lambda tx: tx.append(act(), at_unix_ms=1))
        assert done is not None
        assert (done[0], done[1].tree_size if done[1] else 0) == (0, 1)
        waiting = writer.commit(lambda tx: tx.append(act(), at_unix_ms=1))
        assert writer.commit_alone(lambda _: None) is None, "somebody waits already: first come, first served"
        assert (await waiting)[0] == 1

    asyncio.run(scenario())


def test_work_without_an_entry_gets_no_receipt_and_no_checkpoint(writer: Writer) -> None:
    async def scenario() -> Any:
        return await writer.commit(lambda tx: tx.execute("INSERT INTO meta VALUES ('a', 'b')").rowcount)

    assert asyncio.run(scenario()) == (1, None)
    assert count(writer, "checkpoints") == 0


def test_work_cancelled_before_its_turn_is_not_done(writer: Writer) -> None:
    async def scenario() -> Any:
        futures = [writer.commit(append) for _ in range(3)]
        futures[1].cancel()
        return await asyncio.gather(futures[0], futures[2])

    assert [value for value, _ in asyncio.run(scenario())] == [0, 1]
    assert count(writer) == 2


def test_one_loop_after_another_may_use_a_writer_and_two_at_once_may_not(writer: Writer) -> None:
    async def abandon() -> None:
        writer.commit(append)

    async def commit() -> int:
        return (await writer.commit(append))[0]

    asyncio.run(abandon())
    assert asyncio.run(commit()) >= 0
    refused: list[BaseException] = []

    async def from_another_thread() -> None:
        def run() -> None:
            try:
                asyncio.run(commit())
            except StateError as error:
                refused.append(error)

        await writer.commit(append)
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)

    asyncio.run(from_another_thread())
    assert len(refused) == 1


def test_who_waits_in_a_loop_that_stands_still_is_answered_when_another_one_comes(writer: Writer) -> None:
    """They were forgotten: whoever ran the first loop again waited for ever, and a record of what had run was lost."""

    async def come() -> list[asyncio.Future[tuple[int, Receipt | None]]]:
        return [*(writer.commit(append) for _ in range(3)), writer.commit_closing(append)]

    async def one() -> int:
        return (await writer.commit(append))[0]

    async def all_of(futures: list[asyncio.Future[tuple[int, Receipt | None]]]) -> list[int]:
        return [value for value, _ in await asyncio.gather(*futures)]

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        futures = loop.run_until_complete(come())
        assert asyncio.run(one()) == 4
        assert all(future.done() for future in futures)
        assert loop.run_until_complete(all_of(futures)) == [0, 1, 2, 3]
    assert audit_home(writer.home).findings == ()


def test_a_record_of_what_has_run_is_written_though_its_loop_was_closed(writer: Writer) -> None:
    async def come() -> list[asyncio.Future[tuple[int, Receipt | None]]]:
        return [writer.commit(append), writer.commit(append), writer.commit_closing(append)]

    async def one() -> int:
        return (await writer.commit(append))[0]

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        kept = loop.run_until_complete(come())
    assert asyncio.run(one()) == 2
    assert [future.done() for future in kept] == [True, False, False]


def test_plain_code_commits_without_a_loop(writer: Writer) -> None:
    value, receipt = writer.commit_now(append)
    assert receipt is not None
    assert (value, receipt.tree_size) == (0, 1)
    with pytest.raises(Rejected):
        writer.commit_now(refuse)
    assert count(writer) == 1


def test_threads_may_commit_through_one_writer(writer: Writer) -> None:
    threads = [threading.Thread(target=lambda: [writer.commit_now(append) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (count(writer), audit_home(writer.home).findings) == (40, ())


# ── other processes' locks ───────────────────────────────────────────────────


def test_a_lock_held_elsewhere_is_waited_for_while_the_loop_goes_on(writer: Writer) -> None:
    other = FileLock(writer.home.lock)
    assert other.try_acquire()

    async def scenario() -> tuple[int, int]:
        waiting = [writer.commit(append) for _ in range(3)]
        ticks = 0
        for _ in range(30):
            await asyncio.sleep(0.001)
            ticks += 1
        assert not any(future.done() for future in waiting)
        other.release()
        return (await asyncio.gather(*waiting))[2][0], ticks

    assert asyncio.run(scenario()) == (2, 30)
    other.close()


def test_a_write_transaction_of_a_foreign_program_is_waited_for(writer: Writer) -> None:
    other = sqlite3.connect(writer.home.database, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, lambda: other.execute("ROLLBACK")).start()
    assert writer.commit_now(append)[0] == 0
    other.close()


def test_a_lock_that_is_never_released_ends_in_a_refusal_and_not_in_a_dead_writer(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (writer_module, sharing):
        monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    other = FileLock(writer.home.lock)
    assert other.try_acquire()

    async def commit() -> Any:
        return await writer.commit(append)

    with pytest.raises(StateError, match="has held"):
        asyncio.run(commit())
    with pytest.raises(StateError, match="has held"):
        writer.commit_now(append)
    other.close()
    assert asyncio.run(commit())[0] == 0


# ── forks ────────────────────────────────────────────────────────────────────


def test_a_forked_child_opens_its_own_connection_and_drops_the_lock(writer: Writer) -> None:
    writer.commit_now(append)
    assert writer.database.lock.try_acquire()  # the fork happens in the middle of a commit
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if writer.database.lock._fd == -1 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    writer.database.lock.release()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if writer.commit_now(append)[0] == 1 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert writer.commit_now(append)[0] == 2
    assert audit_home(writer.home).findings == ()


def test_a_child_forked_while_callers_wait_commits_nothing_of_theirs(writer: Writer) -> None:
    """It ran on in its copy of the loop: what waited was written by the parent, and once more by the child."""

    async def scenario() -> tuple[int, list[int]]:
        futures = [writer.commit(append) for _ in range(3)]
        await asyncio.sleep(0)
        child = os.fork()
        for _ in range(20):
            await asyncio.sleep(0)
        if child == 0:
            refused = [isinstance(future.exception(), StateError) for future in futures[1:]]
            os._exit(0 if all(refused) else 1)
        return child, [value for value, _ in await asyncio.gather(*futures)]

    child, values = asyncio.run(scenario())
    assert (os.waitpid(child, 0)[1], values) == (0, [0, 1, 2])
    assert count(writer) == 3


# ── a history that was rewritten ─────────────────────────────────────────────


@promise("journal.changed-head")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE head SET size = 1, frontier = substr(frontier, 1, 32)",
        "UPDATE head SET size = 8",
        "UPDATE head SET size = 32",
        "UPDATE head SET size = 0, frontier = x''",
        "UPDATE head SET frontier = zeroblob(32)",
        "UPDATE head SET frontier = zeroblob(64)",
        "UPDATE head SET size = -1",
        "DELETE FROM head",
        "DELETE FROM checkpoints",
        "DELETE FROM checkpoints WHERE size = 19",
        "UPDATE checkpoints SET note = substr(note, 1, length(note) - 12) || 'AAAAAAAAAA=' || char(10)",
        "UPDATE checkpoints SET note = ''",
        "UPDATE entries SET idx = 19 WHERE idx = 18",
    ],
)
def test_a_head_that_was_changed_is_never_signed_over(writer: Writer, sql: str) -> None:
    for _ in range(19):
        writer.commit_now(append)
    assert writer.rows("SELECT size FROM head") == [(16,)]
    other = sqlite3.connect(writer.home.database)
    with other:
        other.execute(sql)
    (writer.home.state / "entries").unlink()  # it would have a shorter journal refused before it is looked at
    fresh = Writer.open(writer.home.root)
    for victim in (writer, fresh):
        with pytest.raises(StateError):
            victim.commit_now(append)
        with pytest.raises(StateError):
            victim.commit_now(append)
    assert other.execute("SELECT count(*) FROM entries").fetchone() == (19,)
    other.close()
    fresh.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET leaf_hash = zeroblob(32) WHERE idx = 17",
        "UPDATE entries SET leaf_hash = 'text' WHERE idx = 17",
        "DELETE FROM entries WHERE idx = 17",
    ],
)
def test_a_leaf_since_the_stored_head_that_was_changed_is_never_signed_over(writer: Writer, sql: str) -> None:
    for _ in range(19):
        writer.commit_now(append)
    other = sqlite3.connect(writer.home.database)
    with other:
        other.execute(sql)
    other.close()
    fresh = Writer.open(writer.home.root)
    with pytest.raises(StateError, match="does not agree with its own signed head"):
        fresh.commit_now(append)
    fresh.close()


def test_the_next_process_goes_on_from_a_head_that_is_behind_by_any_number_of_entries(writer: Writer) -> None:
    for _ in range(2 * HEAD_EVERY + 1):
        with closing(Writer.open(writer.home.root)) as fresh:
            fresh.commit_now(append)
            assert 0 <= fresh.rows(TREE_SIZE)[0][0] - fresh.rows("SELECT size FROM head")[0][0] < HEAD_EVERY
    assert audit_home(writer.home).findings == ()


def test_a_journal_set_back_under_a_running_writer_is_noticed(writer: Writer) -> None:
    for _ in range(2):
        writer.commit_now(append)
    before = writer.rows("SELECT size, frontier FROM head")[0]
    writer.commit_now(append)
    other = sqlite3.connect(writer.home.database)
    with other:
        other.execute("DELETE FROM entries WHERE idx = 2")
        other.execute("DELETE FROM checkpoints WHERE size = 3")
        other.execute("UPDATE head SET size = ?, frontier = ?", before)
    other.close()
    with pytest.raises(StateError, match="set back"):
        writer.commit_now(append)


# ── disks that fail ──────────────────────────────────────────────────────────


class FailingConnection:
    """A connection whose COMMIT fails as a broken disk makes it fail."""

    def __init__(self, real: sqlite3.Connection, code: int) -> None:
        self._real, self._code = real, code
        self.failing = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def cursor(self) -> FailingConnection:
        return self

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.failing:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._real.execute(sql, parameters)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, 1034, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY])
def test_a_failed_write_stops_the_writer_for_good(writer: Writer, code: int) -> None:
    broken = FailingConnection(writer.database.connection, code)
    writer.database.use(broken)  # type: ignore[attr-defined]

    async def scenario() -> list[Any]:
        works = [writer.commit(append), writer.commit_closing(append)]
        return await asyncio.gather(*works, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(scenario())] == [StateError, StateError]
    broken.failing = False  # the disk is well again, and still nobody knows what it holds
    assert [type(answer) for answer in asyncio.run(scenario())] == [StateError, StateError]
    with pytest.raises(StateError):
        writer.commit_now(append)
    assert count(writer) == 0


@pytest.fixture
def stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "has_room", lambda _: False)


@pytest.mark.usefixtures("stays_full")
def test_on_a_full_disk_what_has_run_is_closed_in_the_reserved_space(writer: Writer) -> None:
    broken = FailingConnection(writer.database.connection, sqlite3.SQLITE_FULL)
    writer.database.use(broken)  # type: ignore[attr-defined]
    reserve = writer.home.reserve

    async def scenario() -> list[Any]:
        works = [writer.commit(append), writer.commit_closing(append)]
        return await asyncio.gather(*works, return_exceptions=True)

    def give_space_back() -> bool:
        broken.failing = False
        return sqlite_module.SqliteDatabase.give_reserve(writer.database)

    writer.database.give_reserve = give_space_back  # type: ignore[method-assign]
    first, second = asyncio.run(scenario())
    assert (type(first), second[0]) == (StateError, 0)
    assert "disk is full" in str(first)
    first, second = asyncio.run(scenario())
    assert (type(first), second[0]) == (StateError, 1)
    assert not reserve.exists()
    assert (count(writer), audit_home(writer.home).findings) == (2, ())


@pytest.mark.usefixtures("stays_full")
def test_a_disk_that_stays_full_stops_closings_too(writer: Writer) -> None:
    writer.commit_now(append)
    pages = writer.rows("PRAGMA page_count")[0][0]
    writer.database.connection.execute(f"PRAGMA max_page_count = {pages}")

    async def fill() -> list[Any]:
        works: list[Any] = [
            writer.commit_closing(lambda tx: tx.keep_blob(os.urandom(100_000), at_unix_ms=NOW)),
            writer.commit(append),
        ]
        return await asyncio.gather(*works, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(fill())] == [StateError, StateError]
    assert [type(answer) for answer in asyncio.run(fill())] == [StateError, StateError]
    assert not writer.home.reserve.exists()
    assert (count(writer), audit_home(writer.home).findings) == (1, ())


def test_a_full_disk_that_has_room_again_is_written_to_again(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon answered 503 until it was restarted."""
    monkeypatch.setattr(sqlite_module, "has_room", lambda _: False)
    writer.commit_now(append)
    pages = writer.rows("PRAGMA page_count")[0][0]
    writer.database.connection.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]
    with pytest.raises(StateError, match="disk is full"):
        writer.commit_now(lambda tx: tx.keep_blob(os.urandom(100_000), at_unix_ms=NOW))
    assert isinstance(writer.failure(), NoRoom)
    monkeypatch.setattr(sqlite_module, "has_room", lambda _: True)
    with pytest.raises(StateError, match="disk is full"):
        writer.commit_now(append)  # room is looked for again only after a moment
    monkeypatch.setattr(writer, "_recover_after_s", 0.0)
    assert writer.failure() is None
    for _ in range(8):
        writer.commit_now(append)
    assert writer.home.reserve.stat().st_size == reserve.RESERVE_BYTES
    assert (count(writer), audit_home(writer.home).findings) == (9, ())


def test_what_was_set_back_while_the_disk_was_full_is_not_continued(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "has_room", lambda _: True)
    writer.commit_now(append)
    writer._fail(no_room())
    monkeypatch.setattr(sqlite_module, "read_mark", lambda _: 7)
    for _ in range(2):
        with pytest.raises(StateError, match="had 7 entries and has 1"):
            writer.commit_now(append)
    assert not isinstance(writer.failure(), NoRoom)


def test_what_one_process_leaves_to_what_has_run_no_other_one_takes(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New calls of the others took the space that the first had given back, and none of them could close its own."""
    other = Writer.open(writer.home.root)
    other.commit_now(append)
    assert writer.database.give_reserve()
    monkeypatch.setattr(reserve, "free_bytes", lambda _: reserve.RESERVE_BYTES)
    other.commit_now(append)
    with pytest.raises(StateError, match="disk is full"):
        other.commit_now(append)

    async def close() -> int:
        return (await other.commit_closing(append))[0]

    assert asyncio.run(close()) == 2
    assert other.database.give_reserve(), "somebody else gave it: there may be room"
    started = Writer.open(writer.home.root)
    assert not writer.home.reserve.exists(), "nor does who starts now"
    started.close()
    other.close()


def test_a_reserve_that_is_gone_where_there_is_room_stops_nobody(writer: Writer) -> None:
    writer.home.reserve.unlink()
    for _ in range(3):
        writer.commit_now(append)


@pytest.mark.parametrize("found", ["gone", "cut short", "empty"])
def test_the_reserve_comes_back_at_the_next_start(writer: Writer, found: str) -> None:
    """On a disk that was full still, a start left a piece of it, which no later one completed."""
    writer.home.reserve.unlink()
    if found != "gone":
        writer.home.reserve.write_bytes(bytes(1000 if found == "cut short" else 0))
    Writer.open(writer.home.root).close()
    assert writer.home.reserve.stat().st_size == reserve.RESERVE_BYTES
    held = zlib.compress(writer.home.reserve.read_bytes(), 1)
    assert len(held) > reserve.RESERVE_BYTES // 2, "a file system that compresses keeps no room for zeros"


def test_a_lock_file_that_is_gone_is_an_answer_and_not_a_hang(writer: Writer) -> None:
    writer.home.lock.unlink()

    async def commit() -> Any:
        return await writer.commit(append)

    with pytest.raises(StateError):
        asyncio.run(commit())


def test_a_file_system_that_keeps_no_locks_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was to be checked, which had nothing."""

    def refuse(_fd: int, operation: int) -> None:
        if operation != fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with contextlib.closing(Writer.open(home)) as writer:
        monkeypatch.setattr(fcntl, "flock", refuse)
        for _ in range(2):
            with pytest.raises(StateError, match=r"writer\.lock cannot be locked: No locks available") as refused:
                writer.commit_now(append)
            assert refused.value.hint == "Its file system keeps no locks: name a --home on a local one."


def test_a_pipe_in_the_locks_place_keeps_nobody_waiting(home: Path) -> None:
    with contextlib.closing(Writer.open(home)) as writer:
        lock = writer.home.lock
    lock.unlink()
    os.mkfifo(lock, 0o600)
    with contextlib.closing(Writer.open(home)) as writer:
        assert writer.commit_now(append)[0] == 0
    assert ProcessOwners(lock).is_alive(ProcessOwners(lock).me())


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_that_ctrl_c_breaks_off_stops_nobody(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Between COMMIT and its answer: the next one went on from the head before, and the journal was said to be
    changed by somebody."""
    commit = writer.database.commit

    def broken_off(**given: int) -> None:
        if durable:
            commit(**given)
        raise KeyboardInterrupt

    writer.commit_now(append)
    with monkeypatch.context() as patched:
        patched.setattr(writer.database, "commit", broken_off)
        with pytest.raises(KeyboardInterrupt):
            writer.commit_now(append)
    assert writer.commit_now(append)[0] == (2 if durable else 1)
    assert audit_home(writer.home).findings == ()


def test_who_shared_a_commit_that_ctrl_c_broke_off_is_answered(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody had their answers any more, and they waited for ever in a loop that was run on."""
    commit = writer.database.commit

    def broken_off(**given: int) -> None:
        commit(**given)
        raise KeyboardInterrupt

    with closing(asyncio.new_event_loop()) as loop:
        waiting: list[asyncio.Future[Any]] = []

        async def begin() -> None:
            waiting.extend(writer.commit(append) for _ in range(3))
            with contextlib.suppress(StateError):
                await waiting[-1]

        with monkeypatch.context() as patched:
            patched.setattr(writer.database, "try_begin", lambda _: False)
            patched.setattr(writer, "commit_alone", lambda *_: None)
            patched.setattr(sharing, "FIRST_PAUSE_S", 0.0)
            task = loop.create_task(begin())
            loop.run_until_complete(asyncio.sleep(0.02))
        with monkeypatch.context() as patched:
            patched.setattr(writer.database, "commit", broken_off)
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(asyncio.sleep(5))
        loop.run_until_complete(asyncio.wait_for(task, 5))
        assert [type(one.exception()) for one in waiting] == [StateError] * 3
        assert "broken off" in str(waiting[0].exception())


def test_ctrl_c_while_somebody_begins_to_wait_keeps_nobody_waiting(writer: Writer) -> None:
    """Between taking a place in the queue and seeing to it that the queue is looked at: it never was again."""

    async def scenario() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(writer.commit(append) for _ in range(3)))  # from now on they go together
        call_soon = loop.call_soon

        def broken_off(*_: object, **__: object) -> None:
            loop.call_soon = call_soon  # type: ignore[method-assign]
            raise KeyboardInterrupt

        loop.call_soon = broken_off  # type: ignore[method-assign, assignment]
        with contextlib.suppress(KeyboardInterrupt):
            writer.commit(append)
        return (await asyncio.wait_for(writer.commit(append), 5))[0], count(writer)

    assert asyncio.run(scenario()) == (3, 4)


def test_a_closed_writer_says_so(home: Path) -> None:
    writer = Writer.open(home)
    writer.close()
    with pytest.raises(StateError, match="closed"):
        writer.commit_now(append)
    with pytest.raises(StateError):
        writer.rows("SELECT 1")


# ── the log file ─────────────────────────────────────────────────────────────


def test_the_log_gets_its_length_at_once_and_a_crash_then_loses_nothing(writer: Writer, tmp_path: Path) -> None:
    """The zeros behind the last frame are no frames: whoever recovers the log stops before them."""
    log = writer.home.database.with_name("palyra.db-wal")

    async def scenario() -> None:
        for _ in range(sqlite_module.COMMITS_BEFORE_GROWTH):
            assert log.stat().st_size < sqlite_module.LOG_BYTES
            await writer.commit(lambda tx: tx.append(act(), at_unix_ms=NOW))
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(scenario())
    for _ in range(3):
        writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    assert log.stat().st_size == sqlite_module.LOG_BYTES
    for name in ("palyra.db", "palyra.db-wal"):
        (tmp_path / name).write_bytes((writer.home.database.parent / name).read_bytes())
    copy = sqlite3.connect(tmp_path / "palyra.db")
    found = copy.execute("SELECT count(*) FROM entries").fetchone(), copy.execute("PRAGMA integrity_check").fetchone()
    copy.close()
    assert found == ((sqlite_module.COMMITS_BEFORE_GROWTH + 3,), ("ok",))
    assert audit_home(writer.home).findings == ()


def test_a_log_that_cannot_be_lengthened_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"frames")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        reserve.fill_up(file, 1 << 20)
    assert file.read_bytes() == b"frames"


def test_the_log_is_copied_back_and_reused_rather_than_grown(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "ENTRIES_PER_COPY_BACK", 16)
    log = writer.home.database.with_name("palyra.db-wal")
    sizes = []
    for _ in range(8):
        for _ in range(16):
            writer.commit_now(append)
        sizes.append(log.stat().st_size)
    assert max(sizes) < 2 * sizes[0]
    assert audit_home(writer.home).findings == ()


def test_the_log_is_copied_back_behind_the_callers_back(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "ENTRIES_PER_COPY_BACK", 8)

    async def scenario() -> None:
        for _ in range(64):
            await writer.commit(append)

    asyncio.run(scenario())
    assert (count(writer), audit_home(writer.home).findings) == (64, ())


@promise("journal.full-disk-endings")
def test_a_copy_back_that_finds_the_disk_full_loses_nothing_and_stops_nobody(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it stands in the log. Stopping there would leave calls that ran without the space kept for their ends."""
    tried = []

    def fail(database: Path) -> sqlite3.Connection:
        tried.append(database)
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite_module, "ENTRIES_PER_COPY_BACK", 2)
    writer.commit_now(append)
    monkeypatch.setattr(sqlite_module, "connect", fail)
    writer.commit_now(append)
    writer.commit_now(append)
    assert len(tried) == 2, "and it is tried again"
    monkeypatch.undo()
    writer.commit_now(append)
    assert (count(writer), audit_home(writer.home).findings) == (4, ())


def test_a_copy_back_that_fails_stops_the_writer(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(database: Path) -> sqlite3.Connection:
        raise StateError(os.strerror(errno.EIO))

    monkeypatch.setattr(sqlite_module, "ENTRIES_PER_COPY_BACK", 2)
    writer.commit_now(append)
    monkeypatch.setattr(sqlite_module, "connect", fail)
    writer.commit_now(append)
    monkeypatch.undo()
    with pytest.raises(StateError, match="copied back"):
        writer.commit_now(append)


def test_without_a_thread_to_be_had_a_commit_is_answered_and_the_upkeep_waits(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedder out of descriptors was told an error where its call had been recorded: a first thread is imported."""
    monkeypatch.setattr(sqlite_module, "ENTRIES_PER_COPY_BACK", 2)
    asked: list[str] = []

    def no_thread(_: object, work: Any, *_given: object) -> None:
        asked.append(work.__name__)
        raise OSError(errno.EMFILE, "Too many open files")

    async def story() -> list[int]:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        return [(await writer.commit(append))[0] for _ in range(2 * sqlite_module.COMMITS_BEFORE_GROWTH)]

    assert asyncio.run(story()) == list(range(2 * sqlite_module.COMMITS_BEFORE_GROWTH))
    assert asked.count("_settle_in") == 2
    assert asked.count("_copy_back") > 1
