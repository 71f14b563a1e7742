"""Files of the state that are moved, replaced or removed under a process: nothing more is acknowledged."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import StateError
from palyra.state import place
from palyra.state.db import read_home
from palyra.state.place import Place, Replaced
from palyra.state.transaction import Transaction
from palyra.state.verifying import verify_journal
from palyra.state.writer import Writer
from tests.journaling import NOW, act, audit_home
from tests.promises import promise


def append(tx: Transaction) -> int:
    return tx.append(act(), at_unix_ms=NOW)


def put(old: Path, state: Path, *names: str) -> None:
    for name in names:
        shutil.copy(old / name, state / "coming")
        os.rename(state / "coming", state / name)


def move_away(state: Path, old: Path) -> None:
    os.rename(state, state.with_name("state.away"))
    shutil.copytree(old, state)


ACTS: dict[str, Callable[[Path, Path], None]] = {
    "the folder was moved and an old copy put there": move_away,
    "an old database and its log were put there": lambda state, old: put(old, state, "palyra.db", "palyra.db-wal"),
    "an old database was put there": lambda state, old: put(old, state, "palyra.db"),
    "an old log was put there": lambda state, old: put(old, state, "palyra.db-wal"),
    "the log was removed": lambda state, old: (state / "palyra.db-wal").unlink(),
    "the log was cut off": lambda state, old: os.truncate(state / "palyra.db-wal", 0),
    "the log's index was removed": lambda state, old: (state / "palyra.db-shm").unlink(),
    "the database was removed": lambda state, old: (state / "palyra.db").unlink(),
    "the key was removed": lambda state, old: (state / "installation.key").unlink(),
}


def overwrite(file: Path, data: bytes, at: int = 0) -> None:
    """In place: name and inode stay."""
    fd = os.open(file, os.O_WRONLY)
    os.pwrite(fd, data, at)
    os.close(fd)


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 // 4096 * 4096)


IN_PLACE: dict[str, Callable[[Path, Path], None]] = {
    "the database was emptied": lambda state, old: os.truncate(state / "palyra.db", 0),
    "the database was cut": lambda state, old: cut_in_half(state / "palyra.db"),
    "the database was filled with zeros": lambda state, old: overwrite(
        state / "palyra.db", bytes((state / "palyra.db").stat().st_size)
    ),
    "one page of the database was overwritten": lambda state, old: overwrite(state / "palyra.db", b"x" * 4096, 8192),
    "an old database was copied over it": lambda state, old: overwrite(
        state / "palyra.db", (old / "palyra.db").read_bytes()
    ),
    "the log was filled with zeros": lambda state, old: overwrite(
        state / "palyra.db-wal", bytes((state / "palyra.db-wal").stat().st_size)
    ),
    "an old log was copied over it": lambda state, old: overwrite(
        state / "palyra.db-wal", (old / "palyra.db-wal").read_bytes()
    ),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_the_commit_after_a_file_was_changed_in_place_is_refused(home: Path, tmp_path: Path, name: str) -> None:
    """SQLite went on with the pages it had cached, and acknowledged what the next process could not read."""
    writer = Writer.open(home)
    writer.moment()  # as every process that stays asks for: the log's index is seen from here on
    for _ in range(6):
        writer.commit_now(append)
    shutil.copytree(home / "state", tmp_path / "old")
    with closing(sqlite3.connect(writer.home.database)) as somebody:
        somebody.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    for _ in range(6):
        writer.commit_now(append)
    IN_PLACE[name](home / "state", tmp_path / "old")
    for _ in range(2):
        with pytest.raises(StateError, match=r"overwritten or truncated while it was in use") as caught:
            writer.commit_now(append)
        assert "palyra journal verify" in (caught.value.hint or "")
    writer.close()


@pytest.mark.parametrize("text", [b"", b"-----BEGIN PRIVATE KEY-----\nanother\n"])
def test_the_commit_after_the_key_was_written_into_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """The key was looked for by name: what was signed with the one in memory, the next process could not continue."""
    monkeypatch.setattr(place, "LOOK_AGAIN_AFTER_S", 0.0)
    writer = Writer.open(home)
    for _ in range(3):
        writer.commit_now(append)
    (home / "state" / "installation.key").write_bytes(text)
    for _ in range(2):
        with pytest.raises(StateError, match=r"installation.key was overwritten or truncated while it was in use"):
            writer.commit_now(append)
    writer.close()


def test_checkpoints_of_any_program_change_the_database_in_order(home: Path) -> None:
    writer, other = Writer.open(home), Writer.open(home)
    writer.moment(), other.moment()
    for at in range(40):
        writer.commit_now(append)
        other.commit_now(append)
        mode = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")[at % 4]
        with closing(sqlite3.connect(writer.home.database)) as somebody:
            somebody.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    other.close()
    writer.commit_now(append)
    writer.close()
    assert audit_home(writer.home).findings == ()


@promise("state.replaced-files")
@pytest.mark.parametrize("settled_after_s", [place.SETTLED_AFTER_S, -1.0])
@pytest.mark.parametrize("name", ACTS)
def test_nothing_is_acknowledged_into_files_that_nobody_will_find(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, settled_after_s: float
) -> None:
    monkeypatch.setattr(place, "SETTLED_AFTER_S", settled_after_s)
    writer = Writer.open(home)
    for _ in range(3):
        writer.commit_now(append)
    shutil.copytree(home / "state", tmp_path / "old")
    for _ in range(3):
        writer.commit_now(append)
    ACTS[name](home / "state", tmp_path / "old")
    for _ in range(2):
        with pytest.raises(StateError, match=r"while it was in use|could not be written: The journal had|disk I/O"):
            writer.commit_now(append)
    writer.close()


def test_a_writer_that_is_let_alone_finds_its_files_where_they_were(home: Path) -> None:
    """Other processes come and go meanwhile; the last of them would remove the log if nobody else were connected."""
    writer = Writer.open(home)
    for _ in range(5):
        writer.commit_now(append)
        other = Writer.open(home)
        other.commit_now(append)
        other.close()
        with closing(sqlite3.connect(writer.home.database)) as somebody:
            assert somebody.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() == [(0, 0, 0)]
        assert writer.home.database.with_name("palyra.db-wal").stat().st_size == 0
    assert audit_home(writer.home).findings == ()
    writer.close()


def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is looked up from now on."""
    names: list[str] = []
    stat = os.stat

    def note(path: str, **more: Any) -> os.stat_result:
        names.append(os.path.basename(path))
        return stat(path, **more)

    monkeypatch.setattr(place.os, "stat", note)
    return names


def test_the_folder_answers_for_its_files_once_its_last_change_is_old(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "SETTLED_AFTER_S", -1.0)
    writer = Writer.open(home)
    for _ in range(3):
        writer.commit_now(append)
    names = looked_up(monkeypatch)
    writer.commit_now(append)
    (home / "state" / "new").touch()
    writer.commit_now(append)
    monkeypatch.setattr(place.time, "monotonic", lambda: 1e12)
    writer.commit_now(append)
    everything = ["state", "palyra.db", "palyra.db-wal", "palyra.db-shm", "installation.key", "reserve"]
    assert names == ["state", *everything, *everything]
    writer.close()


def test_a_folder_that_changed_just_now_does_not_answer_for_its_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time would not tell the next change from that one."""
    monkeypatch.setattr(place, "SETTLED_AFTER_S", 1e9)
    writer = Writer.open(home)
    writer.commit_now(append)
    names = looked_up(monkeypatch)
    writer.commit_now(append)
    assert names == ["state", "palyra.db", "palyra.db-wal", "palyra.db-shm", "installation.key", "reserve"]
    writer.close()


def test_a_place_is_made_of_a_database_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(Replaced, match="removed"):
        Place(tmp_path / "palyra.db")


# ── how many entries there were ──


def lose(home: Path, tmp_path: Path, *, entries: int) -> None:
    """A process that was killed left a log, and somebody tidied up."""
    writer = Writer.open(home)
    for _ in range(3):
        writer.commit_now(append)
    shutil.copytree(home / "state", tmp_path / "then")
    for _ in range(entries):
        writer.commit_now(append)
    writer.close()
    for name in ("palyra.db", "palyra.db-wal"):
        shutil.copy(tmp_path / "then" / name, home / "state" / name)


@promise("state.missing-entries")
def test_entries_that_were_acknowledged_and_are_gone_are_found_without_a_witness(home: Path, tmp_path: Path) -> None:
    lose(home, tmp_path, entries=4)
    with pytest.raises(StateError, match="had 7 entries and has 3") as refused:
        Writer.open(home)
    assert refused.value.hint is not None
    assert str(home / "state" / "entries") in refused.value.hint
    report = verify_journal(read_home(home), is_alive=lambda _: False)
    assert [(finding.code, finding.index) for finding in report.findings] == [("TRUNCATED", 3)]


def test_whoever_accepts_the_loss_goes_on(home: Path, tmp_path: Path) -> None:
    lose(home, tmp_path, entries=1)
    (home / "state" / "entries").unlink()
    writer = Writer.open(home)
    assert writer.commit_now(append)[0] == 3
    assert (home / "state" / "entries").read_bytes() == b"%020d\n" % 4
    assert audit_home(writer.home).findings == ()
    writer.close()


def test_a_whole_copy_of_the_home_goes_on_by_itself(home: Path, tmp_path: Path) -> None:
    """Against that stand receipts and witnesses alone."""
    writer = Writer.open(home)
    writer.commit_now(append)
    writer.close()
    shutil.copytree(home, tmp_path / "copy")
    copy = Writer.open(tmp_path / "copy")
    assert copy.commit_now(append)[0] == 1
    copy.close()


def test_the_mark_is_written_once_the_caller_was_answered(home: Path) -> None:
    writer, mark = Writer.open(home), home / "state" / "entries"

    async def story() -> list[bytes]:
        seen = []
        for commit in (writer.commit_first, writer.commit_alone):
            assert commit(append) is not None
            seen.append(mark.read_bytes() if mark.exists() else b"")
            await asyncio.sleep(0)
            seen.append(mark.read_bytes())
        writer.commit_alone(append)
        return seen

    one, two = b"%020d\n" % 1, b"%020d\n" % 2
    assert asyncio.run(story()) == [b"", one, one, two]
    writer.close()
    assert mark.read_bytes() == b"%020d\n" % 3


def test_a_mark_that_waits_is_written_at_the_end(home: Path) -> None:
    writer, mark = Writer.open(home), home / "state" / "entries"

    async def story() -> bytes:
        writer.commit_alone(append)
        writer.close()
        return mark.read_bytes()

    assert asyncio.run(story()) == b"%020d\n" % 1


def test_a_mark_written_late_does_not_take_back_what_another_process_wrote(home: Path) -> None:
    writer, other = Writer.open(home), Writer.open(home)

    async def story() -> None:
        assert writer.commit_alone(append) is not None
        other.commit_now(append)  # before the first has come to its mark

    asyncio.run(story())
    writer.close()
    other.close()
    assert (home / "state" / "entries").read_bytes() == b"%020d\n" % 2


@pytest.mark.parametrize(
    "said", [b"", b"9", b"99999999999999999999", b"-9999999999999999999\n", b"\xff" * 21, b"9" * 99]
)
def test_a_mark_that_is_none_is_no_reason_to_stop(home: Path, said: bytes) -> None:
    Writer.open(home).close()
    (home / "state" / "entries").write_bytes(said)
    writer = Writer.open(home)
    assert writer.commit_now(append)[0] == 0
    writer.close()


def test_a_mark_is_never_read_or_written_through_a_link(home: Path, tmp_path: Path) -> None:
    Writer.open(home).close()
    (tmp_path / "elsewhere").write_bytes(b"%020d\n" % 99)
    (home / "state" / "entries").symlink_to(tmp_path / "elsewhere")
    writer = Writer.open(home)
    writer.commit_now(append)
    writer.close()
    assert (tmp_path / "elsewhere").read_bytes() == b"%020d\n" % 99


def test_a_pipe_in_the_marks_place_keeps_nobody_waiting(home: Path) -> None:
    Writer.open(home).close()
    os.mkfifo(home / "state" / "entries", 0o600)
    writer = Writer.open(home)
    assert [writer.commit_now(append)[0] for _ in range(2)] == [0, 1]
    writer.close()
