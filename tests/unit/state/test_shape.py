"""The database's layout: what somebody else changed in it is refused at the start and found by the audit."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from palyra.errors import StateError
from palyra.journal.audit import Finding
from palyra.state.db import read_home
from palyra.state.schema import MIGRATIONS
from palyra.state.shape import LAYOUT_SHA256, layout_of, strangers
from palyra.state.verifying import verify_journal
from palyra.state.writer import Writer
from tests.journaling import open_store, run_spec, ulid, walk_call
from tests.promises import promise
from tests.stores import on_sqlite

pytestmark = on_sqlite

COLUMN_THAT_DROPS = """UPDATE sqlite_master SET sql = substr(sql, 1, length(sql) - 1) || ', kept INTEGER
    GENERATED ALWAYS AS (CASE WHEN instr(body, ''agent:demo'') THEN NULL ELSE 1 END) VIRTUAL
    NOT NULL ON CONFLICT IGNORE)' WHERE name = 'entries'"""
CLAUSE_THAT_IGNORES = """UPDATE sqlite_master SET sql = replace(sql, 'PRIMARY KEY', 'PRIMARY KEY ON CONFLICT IGNORE')
    WHERE name = 'checkpoints'"""


@pytest.fixture
def closed(home: Path) -> Path:
    writer, store = open_store(home)
    asyncio.run(walk_call(store, run_spec(ulid()), ulid()))
    writer.close()
    return home


def findings(home: Path) -> tuple[Finding, ...]:
    return verify_journal(read_home(home), is_alive=lambda _: False).findings


def change(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "state" / "palyra.db", isolation_level=None)) as connection:
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA schema_version = {version + 100}")


@promise("state.altered-layout")
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (COLUMN_THAT_DROPS, "table entries in another form"),
        (CLAUSE_THAT_IGNORES, "table checkpoints in another form"),
        ("DROP INDEX skills_active", "a layout without index skills_active"),
        ("DROP TABLE guest_values", "a layout without table guest_values"),
        ("CREATE UNIQUE INDEX once ON entries (length(body))", "index once"),
        ("CREATE TRIGGER sqlitex AFTER INSERT ON calls BEGIN DELETE FROM calls; END", "trigger sqlitex"),
        ("CREATE TRIGGER search_words_x AFTER INSERT ON calls BEGIN DELETE FROM calls; END", "trigger search_words_x"),
        ("CREATE VIEW of_mine AS SELECT * FROM entries", "view of_mine"),
    ],
)
def test_a_layout_that_drops_entries_is_refused_and_found(closed: Path, statement: str, named: str) -> None:
    """A column that must not be null and is ignored otherwise dropped the entries of one agent without an error: its
    calls ran and were acknowledged, and the journal held nothing of them."""
    change(closed, statement)
    with pytest.raises(StateError, match=f"The database contains {named}, which Palyra did not make"):
        Writer.open(closed)
    assert [(one.code, one.detail) for one in findings(closed)] == [
        ("SCHEMA", f"The database contains {named}, which Palyra did not make.")
    ]


@promise("state.altered-layout")
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (COLUMN_THAT_DROPS, "table entries in another form"),
        ("CREATE TRIGGER drops BEFORE INSERT ON entries BEGIN SELECT raise(IGNORE); END", "trigger drops"),
        ("CREATE TRIGGER later AFTER INSERT ON entries BEGIN DELETE FROM entries; END", "trigger later"),
    ],
)
@pytest.mark.parametrize("for_long", [False, True])
def test_a_layout_that_drops_entries_stops_a_process_that_runs(
    home: Path, statement: str, named: str, for_long: bool
) -> None:
    """It was looked at when the home was opened: under a daemon that ran, entries were acknowledged and not there."""
    writer, store = open_store(home)
    for _ in range(1 + 4 * for_long):
        asyncio.run(walk_call(store, run_spec(ulid()), ulid()))
    change(home, statement)
    with pytest.raises(StateError, match=f"The database contains {named}, which Palyra did not make") as stopped:
        asyncio.run(walk_call(store, run_spec(ulid()), ulid()))
    assert stopped.value.hint == "Run: palyra journal verify"
    writer.close()
    assert [one.code for one in findings(home)] == ["SCHEMA"]


def test_statistics_and_tables_made_under_a_process_stop_nobody(home: Path) -> None:
    writer, store = open_store(home)
    for statement in ("ANALYZE", "CREATE TABLE of_mine (a)"):
        asyncio.run(walk_call(store, run_spec(ulid()), ulid()))
        change(home, statement)
    asyncio.run(walk_call(store, run_spec(ulid()), ulid()))
    writer.close()
    assert findings(home) == ()


def test_a_row_that_no_index_knows_is_found(closed: Path) -> None:
    """Calls were counted by an index: a row that somebody put beside it was none too many."""
    with closing(sqlite3.connect(closed / "state" / "palyra.db", isolation_level=None)) as connection:
        of_calls = "FROM sqlite_master WHERE type = 'index' AND tbl_name = 'calls'"
        indexes = connection.execute(f"SELECT type, name, tbl_name, rootpage, sql {of_calls}").fetchall()
    change(closed, f"DELETE {of_calls}")
    with closing(sqlite3.connect(closed / "state" / "palyra.db", isolation_level=None)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(calls)")]
        connection.execute(f"INSERT INTO calls SELECT 'another', {', '.join(columns[1:])} FROM calls")
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", indexes)
        connection.execute("PRAGMA schema_version = 1000")
    assert [one.detail for one in findings(closed)] == ["1 stored calls have no entry."]
    every = verify_journal(read_home(closed), is_alive=lambda _: False, every_signature=True).findings
    assert every[0].code == "SCHEMA"
    assert "calls_of_run" in every[0].detail


def test_tables_of_somebody_elses_own_hurt_nobody(closed: Path) -> None:
    change(
        closed, "CREATE TABLE copied AS SELECT * FROM entries", "CREATE INDEX of_the_copy ON copied (idx)", "ANALYZE"
    )
    Writer.open(closed).close()
    assert findings(closed) == ()


def test_the_digest_is_that_of_the_migrations() -> None:
    assert layout_of(MIGRATIONS) == LAYOUT_SHA256


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_every_older_layout_is_known(version: int) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for migration in MIGRATIONS[:version]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
        assert strangers(connection) == ()
        connection.execute("DROP TABLE checkpoints")
        assert strangers(connection) == ("a layout without table checkpoints",)
