"""What is remembered is what would be read: whoever commits, and in whichever way."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palyra.state import log_index
from palyra.state.connection import connect
from palyra.state.log_index import LogIndex
from palyra.state.remembered import MAX_QUESTIONS, Remembered
from palyra.state.writer import Writer

ASK = "SELECT value FROM meta WHERE name = ?"
QUESTION = ("kept",)
SET = "INSERT INTO meta VALUES ('kept', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def put(writer: Writer, value: str) -> None:
    writer.commit_now(lambda tx: tx.execute(SET, (value,)))


class Counting:
    """The writer, and how often it was read."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.reads = 0
        self.moment = writer.moment

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        self.reads += 1
        return self._writer.rows(sql, parameters)


@pytest.fixture(params=["by the log's index", "by SQLite's word"])
def writer(home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    if request.param == "by SQLite's word":
        monkeypatch.setattr(log_index, "_own_descriptor", lambda _: -1)
    made = Writer.open(home)
    put(made, "first")
    yield made
    made.close()


def test_what_nobody_changed_is_read_once(writer: Writer) -> None:
    counting = Counting(writer)
    remembered = Remembered(counting)
    assert [remembered.rows(ASK, QUESTION) for _ in range(5)] == [[("first",)]] * 5
    assert counting.reads == 1


def test_a_commit_of_ones_own_is_seen_at_once(writer: Writer) -> None:
    remembered = Remembered(writer)
    for value in ("second", "third", "first"):
        remembered.rows(ASK, QUESTION)
        put(writer, value)
        assert remembered.rows(ASK, QUESTION) == [(value,)]


def test_a_commit_of_another_connection_is_seen_at_once(writer: Writer) -> None:
    remembered = Remembered(writer)
    with closing(connect(writer.home.database)) as other:
        for number in range(50):
            remembered.rows(ASK, QUESTION)
            other.execute(SET, (str(number),))
            assert remembered.rows(ASK, QUESTION) == [(str(number),)]
            if number % 10 == 9:  # the log is copied back, and begins anew
                other.execute(f"PRAGMA wal_checkpoint({('PASSIVE', 'RESTART', 'TRUNCATE')[number // 10 % 3]})")


def test_a_commit_of_another_process_is_seen_at_once(writer: Writer) -> None:
    remembered = Remembered(writer)
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2], (sys.argv[3],)); c.commit()"
    for value in ("theirs", "theirs again"):
        remembered.rows(ASK, QUESTION)
        subprocess.run([sys.executable, "-c", code, str(writer.home.database), SET, value], check=True, timeout=60)
        assert remembered.rows(ASK, QUESTION) == [(value,)]


def test_what_was_undone_is_not_remembered(writer: Writer) -> None:
    remembered = Remembered(writer)

    def work(tx: Any) -> None:
        tx.execute(SET, ("undone",))
        assert remembered.rows(ASK, QUESTION) == [("undone",)]  # whoever asks within sees its own work
        raise ValueError

    assert remembered.rows(ASK, QUESTION) == [("first",)]
    with pytest.raises(ValueError, match=r"^$"):
        writer.commit_now(work)
    assert remembered.rows(ASK, QUESTION) == [("first",)]


def test_nothing_found_is_asked_for_again_and_the_memory_is_bounded(writer: Writer) -> None:
    counting = Counting(writer)
    remembered = Remembered(counting)
    assert [remembered.rows(ASK, ("nowhere",)) for _ in range(2)] == [[], []]
    assert counting.reads == 2
    for number in range(MAX_QUESTIONS + 1):
        remembered.rows("SELECT ?", (number,))
    assert len(remembered._known[1]) == 1


def test_a_fork_remembers_nothing_of_its_parent(writer: Writer) -> None:
    remembered = Remembered(writer)
    remembered.rows(ASK, QUESTION)
    child = os.fork()
    if child == 0:
        remembered._known[1][(ASK, QUESTION)] = [("its parent's",)]
        os._exit(0 if remembered.rows(ASK, QUESTION) == [("first",)] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert remembered.rows(ASK, QUESTION) == [("first",)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_looking_at_the_index_drops_no_lock_of_sqlite(home: Path) -> None:
    """Another descriptor of that file, closed, would: the next process would take the log's index for nobody's."""
    writer = Writer.open(home)
    put(writer, "first")
    path = f"{writer.home.database}-shm"
    before = _locks(path)
    assert before, "SQLite holds one as long as it is connected"
    index = LogIndex(str(writer.home.database))
    assert index.is_seen
    assert index.header()
    index.close()
    index.close()
    assert _locks(path) == before
    assert writer.moment() == writer.moment() is not None
    writer.close()
    with closing(sqlite3.connect(home / "state" / "palyra.db")) as again:
        assert again.execute(ASK, QUESTION).fetchall() == [("first",)]


def _locks(path: str) -> list[str]:
    inode = f":{os.stat(path).st_ino}"
    lines = Path("/proc/locks").read_text().splitlines()
    return sorted(line.split(maxsplit=1)[1] for line in lines if inode in line and f" {os.getpid()} " in line)


def test_an_answer_that_another_thread_read_before_a_change_does_not_come_back_after_it(writer: Writer) -> None:
    class Overtaken:
        """Between reading and keeping, another thread changes the row and asks for it."""

        moment = staticmethod(writer.moment)
        is_first = True

        def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
            found = writer.rows(sql, parameters)
            if self.is_first:
                self.is_first = False
                put(writer, "second")
                assert remembered.rows(ASK, QUESTION) == [("second",)]
            return found

    remembered = Remembered(Overtaken())
    remembered.rows(ASK, QUESTION)
    assert remembered.rows(ASK, QUESTION) == [("second",)]
