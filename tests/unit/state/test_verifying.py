"""Two processes find what one finds, in the same order; one is enough when the other is lost."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import closing as closed
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.errors import StateError
from palyra.journal.audit import Report
from palyra.model.record import EntryDraft, Owner, RunSpec
from palyra.state import beside
from palyra.state.db import read_home
from palyra.state.rotation import rotate_key
from palyra.state.schema import MIGRATIONS
from palyra.state.segments import drop_segments, seal_entries
from palyra.state.verifying import verify_journal
from palyra.state.writer import Writer
from tests.journaling import NOW, closing, intent, open_store, opening, run_spec, ulid
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


@pytest.mark.parametrize("two", [False, True])
def test_a_call_that_ends_while_the_journal_is_read_is_not_said_to_dangle(home: Path, two: bool) -> None:
    """It was open in what was read, and when its owner was looked for that had closed it and ended: a home in which
    calls come and go was said not to verify."""
    writer, store = open_store(home)
    run, lasting, passing, killed = run_spec(ulid()), Owner("b", 1, 1), Owner("b", 2, 2), Owner("b", 3, 3)
    calls = {owner: ulid() for owner in (lasting, passing, killed)}
    for owner, call_id in calls.items():
        asyncio.run(store.open_call(replace(opening(call_id, run), owner=owner, entry=intent_of(call_id, run, owner))))

    def is_alive(owner: Owner) -> bool:
        if owner == passing and calls.pop(passing, None) is not None:
            asyncio.run(store.close_call(closing(ended, run)))
        return owner == lasting

    ended = calls[passing]
    report = verify_journal(read_home(home), is_alive=is_alive, beside=two)
    assert [finding.code for finding in report.findings] == ["DANGLING"]
    assert calls[killed] in report.findings[0].detail
    writer.close()


def intent_of(call_id: str, run: RunSpec, owner: Owner) -> EntryDraft:
    entry = intent(call_id, run.run_id)
    said = {"boot_id": owner.boot_id, "pid": owner.pid, "start_ticks": owner.start_ticks}
    return replace(entry, predicate={**entry.predicate, "owner": said})


@pytest.mark.parametrize("what", ["handed over", "removed"])
@pytest.mark.parametrize("two", [False, True])
def test_a_journal_that_is_handed_over_or_thinned_while_it_is_read_verifies(home: Path, what: str, two: bool) -> None:
    """Keys were those from before the reading, sealed files those from behind it."""
    writer = Writer.open(home)
    if what == "removed":
        seal_entries(writer, before_unix_ms=NOW + 10_000, at_unix_ms=NOW)
    found, left = read_home(home), [what]

    def between(_: int) -> None:
        for one in [left.pop()] if left else []:
            if one == "removed":
                with contextlib.suppress(StateError):  # what is read now lies in the log still, and it says so
                    drop_segments(writer, before_unix_ms=NOW + 10_000, at_unix_ms=NOW)

    if what == "handed over":
        rotate_key(writer, actor="user:operator", at_unix_ms=NOW)
    report = verify_journal(found, is_alive=lambda _: True, progress=between, beside=two)
    assert (report.findings, bool(report.pruned)) == ((), what == "removed")
    writer.close()


def test_a_home_that_an_older_palyra_wrote_verifies_as_it_lies_there(tmp_path, monkeypatch):
    """Its runs have no salts, its entries tell of none, and nothing is migrated for who only reads."""
    monkeypatch.setattr("palyra.journal.store._first", lambda *_: {})
    make_evidence(tmp_path).writer.close()
    salted = next(at for at, steps in enumerate(MIGRATIONS) if "ALTER TABLE runs ADD COLUMN salt BLOB" in steps)
    tables = ("ALTER TABLE runs DROP COLUMN salt", "DROP TABLE created_paths", "DROP TABLE policy_good")
    for sql in (*tables, f"DELETE FROM migrations WHERE version > {salted}", f"PRAGMA user_version = {salted}"):
        tamper(tmp_path, sql)
    assert verify(tmp_path, two=False).findings == verify(tmp_path, two=True).findings == ()
