"""A home is made whole, opened checked, migrated with a backup."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.errors import StateError
from palyra.signing import parse_vkey
from palyra.state import db, shape
from palyra.state.connection import snapshot
from palyra.state.db import Home, open_home, read_home
from palyra.state.keyfile import create_key, read_key
from palyra.state.reserve import RESERVE_BYTES
from palyra.state.schema import MIGRATIONS, Migration
from palyra.state.writer import Writer
from tests.journaling import NOW, act, audit_home
from tests.promises import promise


def opened(root: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> Home:
    home, connection = open_home(root, migrations=migrations)
    connection.close()
    return home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def with_entry(root: Path) -> Home:
    writer = Writer.open(root)
    writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    writer.close()
    return writer.home


# ── the first start ──────────────────────────────────────────────────────────


def test_a_new_home_is_closed_to_everyone_else(home: Path) -> None:
    previous = os.umask(0)
    try:
        found = opened(home)
        writer = Writer.open(home)
        writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    finally:
        os.umask(previous)
    assert mode(home) == mode(found.state) == 0o700
    files = {path.name: mode(path) for path in found.state.iterdir()}
    writer.close()
    assert set(files) == {
        *("entries", "installation.key", "palyra.db", "palyra.db-shm", "palyra.db-wal", "reserve", "writer.lock"),
    }
    assert set(files.values()) == {0o600}
    assert found.reserve.stat().st_size == RESERVE_BYTES


def test_the_second_start_finds_the_same_key_and_journal(home: Path) -> None:
    first, second = opened(home), opened(home)
    assert (first.key.seed, first.origin) == (second.key.seed, second.origin)
    assert parse_vkey(first.verifier.vkey) == second.verifier


def test_two_homes_have_two_names_and_two_keys(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    assert one.origin != two.origin
    assert one.key.seed != two.key.seed


def test_a_first_start_that_was_cut_off_is_cleaned_up(home: Path) -> None:
    leftover = home / "state.new-0000"
    leftover.mkdir(parents=True)
    (leftover / "installation.key").write_text("half a key")
    home.chmod(0o700)
    opened(home)
    assert sorted(path.name for path in home.iterdir()) == ["state"]


def test_an_empty_state_folder_counts_as_none(home: Path) -> None:
    (home / "state").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    opened(home)
    assert (home / "state" / "palyra.db").is_file()


def test_the_journal_database_is_durable_by_its_settings(home: Path) -> None:
    _, connection = open_home(home)
    values = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint")
    }
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    connection.close()
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "wal_autocheckpoint": 0}
    assert tables.index("entries") < tables.index("checkpoints")


# ── refusals ─────────────────────────────────────────────────────────────────


def damage_key(state: Path) -> None:
    (state / "installation.key").write_text("-----BEGIN NONSENSE-----\n")


def swap_key(state: Path) -> None:
    (state / "installation.key").unlink()
    create_key(state / "installation.key")


def link_key(state: Path) -> None:
    (state / "installation.key").rename(state / "elsewhere")
    (state / "installation.key").symlink_to(state / "elsewhere")


def pipe_key(state: Path) -> None:
    (state / "installation.key").unlink()
    os.mkfifo(state / "installation.key", 0o600)


def fold_key(state: Path) -> None:
    (state / "installation.key").unlink()
    (state / "installation.key").mkdir(mode=0o700)


def link_database(state: Path) -> None:
    (state / "palyra.db").rename(state.with_name("elsewhere"))
    (state / "palyra.db").symlink_to(state.with_name("elsewhere"))


def link_state(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))
    state.symlink_to(state.with_name("elsewhere"))


def run_sql(sql: str) -> Callable[[Path], None]:
    def change(state: Path) -> None:
        connection = sqlite3.connect(state / "palyra.db")
        with connection:
            connection.execute(sql)
        connection.close()

    return change


@promise("state.owner-only")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda state: (state / "installation.key").unlink(), "key"),
        (lambda state: (state / "installation.key").chmod(0o640), "accessible to other users"),
        (damage_key, "damaged"),
        (swap_key, "not the one this journal was started with"),
        (link_key, "cannot be read"),
        (pipe_key, "replaced by something else"),
        (fold_key, "replaced by something else"),
        (link_database, "is a link"),
        (lambda state: state.chmod(0o755), "accessible to other users"),
        (lambda state: state.parent.chmod(0o770), "written by other users"),
        (link_state, "replaced by something else"),
        (lambda state: (state / "palyra.db").unlink(), "it is missing"),
        (lambda state: (state / "palyra.db").write_bytes(b"not a database" * 500), "cannot be"),
        (lambda state: (state / "palyra.db").write_bytes(b""), "not a database of Palyra"),
        (run_sql("PRAGMA application_id = 7"), "not a database of Palyra"),
        (run_sql("PRAGMA user_version = 99"), "version 99; this Palyra knows up to"),
        (run_sql("DELETE FROM meta"), "does not list the journal's keys"),
        (run_sql("UPDATE keys SET entry = 5"), "not the one this journal was started with"),
        (run_sql("DROP TABLE meta"), "a layout without table meta, which Palyra did not make"),
    ],
)
def test_a_state_that_cannot_be_trusted_is_refused(home: Path, change: Callable[[Path], None], sentence: str) -> None:
    change(opened(home).state)
    with pytest.raises(StateError, match=sentence):
        open_home(home)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StateError):
        open_home(tmp_path / "home")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_home_of_somebody_else_is_refused(home: Path) -> None:
    state = opened(home).state
    os.chown(state, 12345, 12345)
    with pytest.raises(StateError, match="belongs to user 12345"):
        open_home(home)
    os.chown(home, 12345, 12345)
    with pytest.raises(StateError, match="belongs to user 12345"):
        open_home(home)


def test_a_key_file_never_replaces_another(tmp_path: Path) -> None:
    first = create_key(tmp_path / "key")
    with pytest.raises(FileExistsError):
        create_key(tmp_path / "key")
    assert read_key(tmp_path / "key").seed == first.seed
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


# ── migrations ───────────────────────────────────────────────────────────────

NEWER: tuple[Migration, ...] = (*MIGRATIONS, ("CREATE TABLE novelty (x INTEGER) STRICT",))
BROKEN: tuple[Migration, ...] = (*MIGRATIONS, ("CREATE TABLE novelty (x INTEGER)", "CREATE NONSENSE"))


def test_an_older_database_is_backed_up_and_migrated(home: Path) -> None:
    before = with_entry(home)
    after = opened(home, NEWER)
    backup = after.state / f"palyra.db.v{len(MIGRATIONS)}.backup"
    assert (mode(backup), before.origin) == (0o600, after.origin)
    copy = sqlite3.connect(backup)
    assert copy.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    copy.close()
    with snapshot(after.database) as connection:
        assert connection.execute("SELECT version FROM migrations").fetchall() == [
            (version,) for version in range(1, len(NEWER) + 1)
        ]
        assert connection.execute("SELECT count(*) FROM novelty").fetchone() == (0,)
    assert audit_home(after).findings == ()


def test_a_start_while_another_process_migrates_finds_nothing_strange(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout was read before and its number behind: all that was new was missing, as if somebody had dropped it."""
    open_home(home, migrations=MIGRATIONS[:5])[1].close()
    parts, left = shape._parts, [home]

    def between(rows: list[tuple[str, str, str, str]]) -> dict[shape.Part, shape.Part]:
        if left:
            opened(left.pop())
        return parts(rows)

    monkeypatch.setattr(shape, "_parts", between)
    assert opened(home).root == home
    assert left == []


def test_the_folders_that_a_first_start_makes_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state was, and a power cut could take the folder around it, with all that had been acknowledged."""
    synced: list[Path] = []
    monkeypatch.setattr(db, "sync_folder", synced.append)
    opened(tmp_path / "new" / "and" / "deep")
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "and", tmp_path / "new" / "and" / "deep"} <= set(synced)


def test_a_migrated_database_is_refused_by_the_older_palyra(home: Path) -> None:
    opened(home, NEWER)
    with pytest.raises(StateError, match="this Palyra knows up to") as refused:
        opened(home, MIGRATIONS)
    assert refused.value.hint is not None
    assert "newer Palyra" in refused.value.hint


def test_a_migration_that_fails_changes_nothing(home: Path) -> None:
    before = with_entry(home)
    with pytest.raises(StateError):
        opened(home, BROKEN)
    assert opened(home).origin == before.origin
    assert audit_home(before).findings == ()


# ── read only ────────────────────────────────────────────────────────────────


def read_meta(root: Path) -> tuple[bool, int]:
    found = read_home(root)
    with snapshot(found.database) as view:
        return found.holds_key, view.execute("SELECT count(*) FROM meta").fetchone()[0]


def test_a_home_to_read_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no installation"):
        read_home(tmp_path / "typo")
    assert list(tmp_path.iterdir()) == []


def test_a_home_is_read_without_its_key_and_never_with_another(home: Path) -> None:
    open_home(home)[1].close()
    assert read_meta(home) == (True, 2)
    key = home / "state" / "installation.key"
    key.unlink()
    assert read_meta(home) == (False, 2)
    create_key(key)
    with pytest.raises(StateError, match="not the one"):
        read_home(home)


def test_a_file_named_like_the_next_key_does_not_let_another_pass_for_this_homes(home: Path) -> None:
    """A journal written anew under another key verified without a word, with the real key beside it."""
    open_home(home)[1].close()
    swap_key(home / "state")
    following = home / "state" / "installation.key.next"
    create_key(following)
    with pytest.raises(StateError, match="not the one"):
        read_home(home)
    following.write_bytes(b"")
    assert not read_home(home).holds_key, "it is said that the key could not be used"


@pytest.mark.parametrize("with_log", [True, False])
def test_a_folder_that_cannot_be_written_is_read_with_its_log(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_log: bool
) -> None:
    _, connection = open_home(home)
    connection.execute("INSERT INTO meta VALUES ('in', 'the log')")
    if not with_log:
        connection.close()
    copy = tmp_path / "copy"
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("*-shm"))
    connection.close()
    refuse_writing(monkeypatch)
    before = sorted(path.name for path in (copy / "state").iterdir())
    assert read_meta(copy) == (True, 3)
    assert sorted(path.name for path in (copy / "state").iterdir()) == before


def refuse_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a read-only disk does, for root too: SQLite finds no place for the log's index."""
    real = sqlite3.connect

    def connect(name: str, **options: object) -> sqlite3.Connection:
        if name.endswith("?mode=ro"):
            raise sqlite3.OperationalError("unable to open database file")
        return real(name, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("palyra.state.connection.is_writable", lambda _: False)
    monkeypatch.setattr("palyra.state.connection.sqlite3.connect", connect)
