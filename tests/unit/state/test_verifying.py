"""Two processes find what one finds, in the same order; one is enough when the other is lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing as closed
from pathlib import Path

import pytest

from palyra.journal.audit import Report
from palyra.state import beside
from palyra.state.db import read_home
from palyra.state.schema import MIGRATIONS
from palyra.state.verifying import verify_journal
from tests.unit.journal.evidence import make_evidence

TAMPERING = {
    "nothing": "SELECT 1",
    "a row's status": "UPDATE calls SET status = 'failed', reason = 'TIMEOUT'",
    "a row": "DELETE FROM calls WHERE rowid_of = 1",
    "a kept value": "UPDATE blobs SET data = x'00'",
    "kept values gone": "UPDATE calls SET details = NULL, outcome = NULL",
    "openings": "DELETE FROM openings WHERE field = 'outcome'",
    "an opening's bytes": "UPDATE openings SET salt = x'01'",
    "keys of runs": "DELETE FROM run_keys",
    "an entry": "UPDATE entries SET body = replace(body, 'palyra.echo', 'palyra.exec') WHERE idx = 5",
    "an entry gone": "DELETE FROM entries WHERE idx = 6",
    "a call's claim of another place": "UPDATE entries SET idx = 9000 WHERE idx = 7",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_evidence(tmp_path / "home").writer.close()
    return tmp_path / "home"


def tamper(home: Path, sql: str) -> None:
    sql = sql.replace("rowid_of = 1", "call_id = (SELECT min(call_id) FROM calls)")
    with closed(sqlite3.connect(home / "state" / "palyra.db")) as connection:
        connection.execute(sql)
        connection.commit()


def verify(home: Path, *, two: bool) -> Report:
    return verify_journal(read_home(home), is_alive=lambda _: False, beside=two)


@pytest.mark.parametrize("what", TAMPERING)
def test_two_processes_find_what_one_finds(home, what, monkeypatch):
    tamper(home, TAMPERING[what])
    monkeypatch.setattr(beside, "BATCH", 1)
    alone = verify(home, two=False)
    assert alone.sound == (what == "nothing")
    assert verify(home, two=True) == alone


def test_a_second_process_that_dies_costs_no_finding(home, monkeypatch):
    tamper(home, TAMPERING["a kept value"])
    monkeypatch.setattr(beside, "_BOOT", "import os; os.write(1, b'12 00\\n')")
    assert verify(home, two=True) == verify(home, two=False)


def test_nothing_of_the_current_folder_is_imported(home, tmp_path, monkeypatch):
    """An agent writes there; whoever verifies its journal may stand there."""
    trap = tmp_path / "trap"
    (trap / "palyra").mkdir(parents=True)
    for name in ("palyra/__init__.py", "json.py", "orjson.py", "sqlite3.py"):
        (trap / name).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n")
    monkeypatch.chdir(trap)
    monkeypatch.syspath_prepend("")
    with beside.begin_beside(home / "state" / "palyra.db") as (_, checking):
        assert list(checking.findings()) == []
    assert not (tmp_path / "sprung").exists()


def test_a_journal_that_grows_meanwhile_is_read_as_of_one_moment(home, monkeypatch):
    """The second process looks later: unless it sees the same head, both look again."""
    looked = []
    original = beside._Beside.say

    def say(self, line):
        if line == b"look" and len(looked) < 3:
            looked.append(line)
            make_more(home)
        return original(self, line)

    monkeypatch.setattr(beside._Beside, "say", say)
    report = verify(home, two=True)
    assert report.sound
    assert len(looked) == 3
    assert report.entries == verify(home, two=False).entries


def make_more(home: Path) -> None:
    make_evidence(home, before=1, after=1).writer.close()


def test_a_home_that_an_older_palyra_wrote_verifies_as_it_lies_there(tmp_path, monkeypatch):
    """Its runs have no salts, its entries tell of none, and nothing is migrated for who only reads."""
    monkeypatch.setattr("palyra.journal.store._first", lambda *_: {})
    make_evidence(tmp_path).writer.close()
    tables = ("ALTER TABLE runs DROP COLUMN salt", f"DELETE FROM migrations WHERE version = {len(MIGRATIONS)}")
    for sql in (*tables, f"PRAGMA user_version = {len(MIGRATIONS) - 1}"):
        tamper(tmp_path, sql)
    assert verify(tmp_path, two=False).findings == verify(tmp_path, two=True).findings == ()
