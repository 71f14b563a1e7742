"""What is kept goes when it is told to, the journal says so, and old proofs go on holding."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from palyra.errors import StateError
from palyra.journal.export import check_lines
from palyra.journal.merkle import leaf_hash
from palyra.journal.proof import check_proof, make_proof
from palyra.journal.pruned_runs import write_uses
from palyra.journal.run_terms import terms_sha256
from palyra.journal.store import JournalStore
from palyra.journal.tree import Tree
from palyra.model.approval import Scope
from palyra.model.budget import Spending
from palyra.model.record import RunSpec
from palyra.state import retention, sealed, segments
from palyra.state.retention import Removed, delete_records, redact_call
from palyra.state.rotation import rotate_key
from palyra.state.rows import JournalRows
from palyra.state.segments import drop_segments, seal_entries
from palyra.state.writer import Writer
from tests.approving import YES, Desk, question
from tests.journaling import NOW, act, audit_home, closing, many_acts, open_store, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import WHERE, on_sqlite, tampering

DAY = 24 * 3600 * 1000
SECRET = b'{"input":{"pin":"4711"}}'


async def call(store: JournalStore, run: RunSpec, *, at: int, wall_us: int = 0) -> str:
    call_id = ulid()
    opened = opening(call_id, run, details=SECRET + call_id.encode())
    await store.open_call(replace(opened, opened_unix_ms=at))
    outcome = b'{"output":{"pin":"4711"},"id":"' + call_id.encode() + b'"}'
    closed = replace(closing(call_id, run, outcome=outcome), closed_unix_ms=at + 5, spent=Spending(wall_us=wall_us))
    await store.close_call(closed)
    return call_id


@pytest.fixture
def kept(home: Path) -> Iterator[tuple[Writer, JournalStore, list[str]]]:
    """Four calls: two a day old, of two principals; two of now."""
    writer, store = open_store(home)
    alice, bob = run_spec(ulid(), principal="agent:alice"), run_spec(ulid(), principal="agent:bob")

    async def scenario() -> list[str]:
        pairs = ((alice, NOW - DAY), (bob, NOW - DAY), (alice, NOW), (bob, NOW))
        return [await call(store, run, at=at) for run, at in pairs]

    calls = asyncio.run(scenario())
    yield writer, store, calls
    writer.close()


def bytes_of(writer: Writer) -> bytes:
    """What lies in the files; of a server, what its tables hold."""
    if WHERE != "sqlite":
        tables = ("blobs", "openings", "calls", "entries", "run_keys")
        found = [row for table in tables for row in writer.rows(f"SELECT {table}::text FROM {table}")]
        plain = [row[0] for row in writer.rows("SELECT data FROM blobs")]
        plain += [row[0] for row in writer.rows("SELECT body FROM entries WHERE body IS NOT NULL")]
        return b"".join([*plain, *(row[0].encode() for row in found)])
    state = writer.home.state
    return b"".join(path.read_bytes() for path in state.glob("palyra.db*") if not path.name.endswith("-shm"))


def audit(writer: Writer) -> list[str]:
    return [finding.code for finding in audit_home(writer.home, every=True).findings]


def test_records_past_their_time_go_and_the_journal_says_so(kept: tuple[Writer, JournalStore, list[str]]) -> None:
    writer, store, calls = kept
    removed = delete_records(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    assert removed == Removed(calls=2, blobs=4, openings=10)
    assert audit(writer) == []
    found = asyncio.run(store.find_call(calls[0]))
    assert found is not None
    assert (found.details, found.outcome, found.input_sha256, found.status) == (b"", b"", "", "completed")
    left = bytes_of(writer)
    assert calls[0].encode() + b'"' in left  # its entries stay
    assert SECRET + calls[0].encode() not in left
    assert SECRET + calls[2].encode() in left
    act = orjson.loads(store.tail(1)[0].body)["predicate"]
    assert (act["act"], act["actor"], act["details"]["calls"]) == ("records.deleted", "palyra", 2)
    assert delete_records(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW) == Removed()
    assert len(store.tail(99)) == 9


def test_retention_can_be_of_one_principal(kept: tuple[Writer, JournalStore, list[str]]) -> None:
    writer, _, _ = kept
    removed = delete_records(writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW, principal="agent:bob", actor="user:ops")
    assert removed.calls == 2
    rows = writer.rows("SELECT principal, details IS NULL FROM calls ORDER BY principal")
    assert rows == [("agent:alice", 0), ("agent:alice", 0), ("agent:bob", 1), ("agent:bob", 1)]
    assert audit(writer) == []


def test_a_redacted_call_can_be_neither_shown_nor_opened(kept: tuple[Writer, JournalStore, list[str]]) -> None:
    writer, store, calls = kept
    removed = redact_call(writer, calls[2], actor="user:ops", reason="a customer's wish", at_unix_ms=NOW)
    assert removed == Removed(calls=1, blobs=2, openings=5)
    assert writer.rows("SELECT count(*) FROM openings WHERE entry IN (4, 5)") == [(0,)]
    assert SECRET + calls[2].encode() not in bytes_of(writer)
    assert audit(writer) == []
    act = orjson.loads(store.tail(1)[0].body)["predicate"]
    assert act["details"] == {
        "call_id": calls[2],
        "fields": ["details", "input", "outcome", "output", "plan"],
        "reason": "a customer's wish",
    }
    with pytest.raises(StateError, match="no call"):
        redact_call(writer, "nobody", actor="user:ops", reason="", at_unix_ms=NOW)


@promise("journal.silent-removal")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE calls SET details = NULL WHERE intent_index = 0",
        "UPDATE calls SET outcome = NULL WHERE intent_index = 4",
        "DELETE FROM blobs",
        "INSERT INTO deletions (entry, act, before_unix_ms) VALUES (3, 'records.deleted', 99999999999999)",
        "INSERT INTO deletions (entry, act, first, count) VALUES (3, 'entries.pruned', 0, 8)",
        "UPDATE entries SET body = NULL WHERE idx = 2",
        "DELETE FROM run_keys",
    ],
)
def test_records_that_went_without_a_word_are_found(kept: tuple[Writer, JournalStore, list[str]], sql: str) -> None:
    writer, _, _ = kept
    with tampering(writer.home) as other:
        other.execute(sql)
    assert {"KEPT", "EDITED"} & set(audit(writer))


def test_deleting_a_runs_key_closes_every_commitment_of_the_run(kept: tuple[Writer, JournalStore, list[str]]) -> None:
    """The salts that lie in `openings` are of no use without it, also in an old copy of the file."""
    writer, _, _ = kept
    salts = writer.rows("SELECT salt FROM openings")
    assert {len(salt) for (salt,) in salts} == {33}
    key = writer.rows("SELECT DISTINCT run_id FROM openings")
    assert len(key) == writer.rows("SELECT count(*) FROM run_keys")[0][0] == 2


# ── segments ─────────────────────────────────────────────────────────────────


def test_sealed_entries_verify_prove_and_export_as_before(kept: tuple[Writer, JournalStore, list[str]]) -> None:
    writer, store, calls = kept
    before = store.tail(99)
    (segment,) = seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    assert (segment.first, segment.count, segment.path.stat().st_mode & 0o777) == (0, 4, 0o600)
    assert writer.rows("SELECT idx FROM entries WHERE body IS NULL") == [(0,), (1,), (2,), (3,)]
    assert store.tail(99)[:8] == before
    assert audit(writer) == []
    assert seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW) == ()
    lines = segment.path.read_bytes().splitlines(keepends=True)
    assert check_lines(orjson.loads(lines[0]), iter(lines[1:]), writer.home.verifier).findings == ()
    head = store.checkpoint()
    assert head is not None
    proof = make_proof(calls[0], store.by_call(calls[0]), head, tree=Tree(writer.rows), keys=writer.home.keys)
    assert check_proof(orjson.loads(orjson.dumps(proof)), writer.home.verifier) == ()
    rotate_key(writer, actor="user:ops", at_unix_ms=NOW)
    assert audit(writer) == []


@promise("journal.audit-time")
def test_a_sealed_file_is_read_once_however_many_acts_lie_between_its_calls(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acts are read from the database; the file was begun again behind each, for an hour where an agent's host asks."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    for _ in range(9):
        asyncio.run(call(store, run, at=NOW - DAY))
        many_acts(writer, 2)
    asyncio.run(call(store, run, at=NOW - DAY))
    assert len(seal_entries(writer, before_unix_ms=NOW, at_unix_ms=NOW)) == 1
    begun: list[Path] = []
    lines = sealed._lines

    def counted(path: Path) -> Iterator[bytes]:
        begun.append(path)
        return lines(path)

    monkeypatch.setattr(sealed, "_lines", counted)
    assert (audit(writer), len(begun)) == ([], 1)
    writer.close()


@pytest.mark.parametrize("attack", ["edit", "cut", "remove", "swap", "pipe", "endless"])
def test_a_sealed_file_that_was_touched_is_found(kept: tuple[Writer, JournalStore, list[str]], attack: str) -> None:
    writer, _, _ = kept
    (segment,) = seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    data = segment.path.read_bytes()
    lines = data.splitlines(keepends=True)
    if attack == "edit":
        segment.path.write_bytes(data.replace(b"agent:alice", b"agent:alicf", 1))
    elif attack == "cut":
        segment.path.write_bytes(b"".join(lines[:3]))
    elif attack == "swap":
        segment.path.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
    else:
        segment.path.unlink()
    if attack == "pipe":  # an audit waited for somebody to write to it
        os.mkfifo(segment.path)
    elif attack == "endless":  # one line without an end was read into memory
        with segment.path.open("wb") as file:
            file.truncate(1 << 40)
    assert "EDITED" in audit(writer)


@promise("journal.sealed-file")
@pytest.mark.parametrize("attack", ["header", "end", "more", "row", "no row", "said to be there"])
def test_a_sealed_file_is_found_to_be_another_where_no_leaf_tells(
    kept: tuple[Writer, JournalStore, list[str]], attack: str
) -> None:
    """Its header and its end are in no leaf: the entries verified, and the file, handed to somebody else, did not."""
    writer, _, _ = kept
    (segment,) = seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    if attack == "said to be there":
        drop_segments(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    assert audit(writer) == []
    if attack in ("header", "end", "more"):
        data = segment.path.read_bytes()
        lines = data.splitlines(keepends=True)
        changed = {
            "header": data.replace(b'"first":0', b'"first":1', 1),
            "end": b"".join(lines[:-1]) + b'{"end":true,"count":9}\n',
            "more": data + b"more",
        }
        segment.path.write_bytes(changed[attack])
    else:
        sql = {
            "row": "UPDATE segments SET bytes = 1",
            "no row": "UPDATE segments SET first = first + 1000000",
            "said to be there": "UPDATE segments SET present = 1",
        }
        with tampering(writer.home) as other:
            other.execute(sql[attack])
    assert "KEPT" in audit(writer)


@promise("journal.retention-age")
@pytest.mark.parametrize("attack", ["UPDATE segments SET present = 0", "UPDATE segments SET first = first + 1000000"])
def test_retention_removes_no_sealed_file_that_a_row_alone_calls_removed(
    kept: tuple[Writer, JournalStore, list[str]], attack: str
) -> None:
    """It took the file for what a crash had left there: the only copy of entries went, however young they were."""
    writer, _, _ = kept
    (segment,) = seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    with tampering(writer.home) as other:
        other.execute(attack)
    with pytest.raises(StateError, match="is not what its entries say: it stays"):
        seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    assert segment.path.is_file()
    with tampering(writer.home) as other:
        other.execute("UPDATE segments SET present = 1, first = 0")
    assert audit(writer) == []


def test_no_segment_ends_between_an_intent_and_its_result(home: Path) -> None:
    writer, store = open_store(home)
    run = run_spec(ulid())

    async def scenario() -> None:
        await call(store, run, at=NOW - DAY)
        await store.open_call(replace(opening(ulid(), run), opened_unix_ms=NOW - DAY))  # still runs
        await call(store, run, at=NOW - DAY)

    asyncio.run(scenario())
    (segment,) = seal_entries(writer, before_unix_ms=NOW, at_unix_ms=NOW)
    assert (segment.first, segment.count) == (0, 2)
    assert [finding.code for finding in audit_home(writer.home, alive=True).findings] == []
    writer.close()


def test_dropped_segments_leave_hashes_by_which_old_proofs_go_on_holding(
    kept: tuple[Writer, JournalStore, list[str]],
) -> None:
    writer, store, calls = kept
    head = store.checkpoint()
    assert head is not None
    proof = make_proof(calls[0], store.by_call(calls[0]), head, tree=Tree(writer.rows), keys=writer.home.keys)
    seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    assert drop_segments(writer, before_unix_ms=NOW - 2 * DAY, at_unix_ms=NOW) == ()
    (gone,) = drop_segments(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    assert not gone.path.exists()
    report = audit_home(writer.home, every=True)
    assert (report.findings, report.pruned, report.entries) == ((), 4, 10)
    assert check_proof(orjson.loads(orjson.dumps(proof)), writer.home.verifier) == ()
    newest = store.checkpoint()
    assert newest is not None
    assert Tree(writer.rows).inclusion(0, newest)  # the tree is whole
    assert asyncio.run(store.find_call(calls[0])) is None
    assert SECRET + calls[0].encode() not in bytes_of(writer)
    rows = writer.rows("SELECT idx FROM entries WHERE body IS NULL")
    assert rows == [(0,), (1,), (2,), (3,)]
    asyncio.run(call(store, run_spec(ulid()), at=NOW))
    assert audit(writer) == []
    first = JournalRows(writer.database.connection, writer.home.segments).first_body()
    assert first == 4


def test_a_bodys_loss_that_was_not_told_is_found_beside_one_that_was(
    kept: tuple[Writer, JournalStore, list[str]],
) -> None:
    writer, _, _ = kept
    seal_entries(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    drop_segments(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW)
    with tampering(writer.home) as other:
        other.execute("UPDATE entries SET body = NULL WHERE idx = 5")
    assert "EDITED" in audit(writer)


def aged(home: Path) -> tuple[Writer, JournalStore]:
    """Two old calls with three acts between them (2, 3, 4), and a call of now."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    asyncio.run(call(store, run, at=NOW - 5 * DAY))
    many_acts(writer, 3)
    asyncio.run(call(store, run, at=NOW - 4 * DAY))
    asyncio.run(call(store, run, at=NOW))
    return writer, store


@promise("journal.retention-cover")
def test_an_act_that_somebody_removed_under_cover_of_retention_is_found(home: Path) -> None:
    """Retention removes the bodies of calls alone. Where it had been, anybody could remove the acts as well: who got a
    token, which policies were put in place."""
    writer, _ = aged(home)
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    assert audit(writer) == []
    with tampering(writer.home) as other:
        other.execute("UPDATE entries SET body = NULL WHERE idx = 3")
    found = audit_home(writer.home).findings
    assert [(one.code, one.index, one.detail) for one in found] == [
        ("MISSING", 0, "Of entries 0 to 6, 4 were sealed away, and 5 are gone.")
    ]
    writer.close()


@promise("journal.retention-cover")
def test_a_body_put_back_does_not_make_up_for_an_act_that_somebody_removed(home: Path) -> None:
    """Their number alone was compared: a call's entry out of an old export, and an act could go in its place."""
    writer, _ = aged(home)
    bodies = [row[0] for row in writer.rows("SELECT body FROM entries ORDER BY idx")]
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    with tampering(writer.home) as other:
        other.execute("UPDATE entries SET body = NULL WHERE idx IN (2, 3)")
        for index in (0, 1):
            other.execute("UPDATE entries SET body = ? WHERE idx = ?", (bodies[index], index))
    found = [one.detail for one in audit_home(writer.home).findings if one.code == "MISSING"]
    assert found == ["Of entries 0 to 6, others are gone than were sealed away."]
    writer.close()


@pytest.fixture(params=[False, True], ids=["now", "by an older version"])
def older(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whose acts told nothing of the runs that lost entries."""
    if request.param:
        monkeypatch.setattr(segments, "_keep_runs", lambda *_, **__: {})
    return bool(request.param)


@pytest.mark.parametrize(
    ("change", "named", "was_named"),
    [
        ("calls_used = 0", "calls_used", "calls_used"),
        ("wall_us_used = wall_us_used - 1", "wall_us_used", None),
        ("wall_us_used = 0", "wall_us_used", "wall_us_used"),
        ("calls_max = 1000000", "calls_max", "calls_max"),
    ],
)
def test_a_budget_is_not_raised_under_cover_of_retention(
    home: Path, older: bool, change: str, named: str, was_named: str | None
) -> None:
    """Of a run that had lost entries nothing was compared but the number of the next one."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    for at in (NOW - 5 * DAY, NOW):
        asyncio.run(call(store, run, at=at, wall_us=7))
    prune(writer)
    assert audit(writer) == []
    with tampering(writer.home) as other:
        other.execute(f"UPDATE runs SET {change}")
    found = [one.detail for one in audit_home(writer.home).findings]
    told = was_named if older else named
    assert found == ([] if told is None else [f"The row of run {run.run_id} differs from its entries: {told}."])
    writer.close()


def prune(writer: Writer) -> None:
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)


@promise("journal.emptied-run")
@pytest.mark.parametrize(
    "change",
    [
        "principal = 'agent:mallory'",
        "calls_max = 1000000",
        "calls_used = 0",
        "fuel_used = 1",
        "created_unix_ms = 0",
        "workspace = '/'",
        "salt = NULL",
        "next_sequence = 1",
        "attempts_used = 1",
        "wall_us_max = 9",
    ],
)
@pytest.mark.parametrize("goes_on", [False, True], ids=["all gone", "used again since"])
def test_a_run_that_retention_emptied_cannot_be_made_another_run(home: Path, change: str, goes_on: bool) -> None:
    """All its entries were gone, and its row was compared with nothing: other limits, another's, for another day."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    asyncio.run(call(store, run, at=NOW - 5 * DAY, wall_us=7))
    prune(writer)
    if goes_on:
        asyncio.run(call(store, run, at=NOW, wall_us=7))
    assert audit(writer) == []
    with tampering(writer.home) as other:
        other.execute(f"UPDATE runs SET {change}")
    found = [one.detail for one in audit_home(writer.home).findings]
    named = "workspace" if change.startswith("salt") else change.split()[0]
    assert found == [f"The row of run {run.run_id} differs from its entries: {named}."]
    writer.close()


def test_runs_that_lose_entries_again_and_again_go_on_verifying(home: Path) -> None:
    writer, store = open_store(home)
    run, other = run_spec(ulid()), run_spec(ulid())
    for age in (9, 7, 5):
        asyncio.run(call(store, run, at=NOW - age * DAY, wall_us=7))
        asyncio.run(call(store, other, at=NOW - age * DAY, wall_us=3))
        seal_entries(writer, before_unix_ms=NOW - (age - 1) * DAY, at_unix_ms=NOW)
        asyncio.run(call(store, run, at=NOW - (age - 1) * DAY, wall_us=1))
        drop_segments(writer, before_unix_ms=NOW - (age - 1) * DAY, at_unix_ms=NOW)
        assert audit(writer) == []
    asyncio.run(call(store, run, at=NOW, wall_us=7))
    assert audit(writer) == []
    writer.close()


def test_what_retention_kept_of_runs_cannot_be_taken_away_or_changed(home: Path) -> None:
    writer, store = open_store(home)
    run = run_spec(ulid())
    asyncio.run(call(store, run, at=NOW - 5 * DAY, wall_us=7))
    prune(writer)
    for sql in ("UPDATE blobs SET data = x'7b7d'", "DELETE FROM blobs"):
        with tampering(writer.home) as other:
            other.execute(sql)
        assert "What entry 3 tells of runs whose entries it removed is gone." in [
            one.detail for one in audit_home(writer.home).findings
        ]
    writer.close()


@promise("journal.raised-budget")
@pytest.mark.parametrize("begins", [True, False], ids=["used", "not yet used"])
@pytest.mark.parametrize("had", [0, 1, 2])
def test_a_run_that_somebody_made_up_is_not_taken_for_one_that_retention_emptied(
    home: Path, older: bool, had: int, begins: bool
) -> None:
    """With limits of theirs, which all its entries then confirm."""
    writer, store = open_store(home)
    for at in (NOW - 5 * DAY, NOW):
        asyncio.run(call(store, run_spec(ulid()), at=at))
    prune(writer)
    assert audit(writer) == []
    run = run_spec(ulid())
    forged = (run.run_id, run.principal, "/", had, 10**6, 0, 10**6, had, NOW)
    with tampering(writer.home) as other:
        names = "run_id, principal, workspace, calls_used, calls_max, attempts_used, attempts_max, next_sequence"
        other.execute(f"INSERT INTO runs ({names}, created_unix_ms) VALUES ({', '.join('?' * 9)})", forged)
    if begins:
        asyncio.run(call(store, run, at=NOW))
    found = [one.detail for one in audit_home(writer.home).findings]
    if had:
        counted, removed = (2 + had, 2) if older else (had, 0)
        assert found[-1] == f"Rows of runs count {counted} entries that are gone, and retention removed {removed}."
    else:
        assert found == ([] if begins else [f"The row of run {run.run_id} has no entry."]), "it was made anew"
    writer.close()


@pytest.mark.parametrize("sql", ["UPDATE calls SET closed_unix_ms = 1", "UPDATE calls SET opened_unix_ms = 1"])
def test_times_that_somebody_changed_in_the_rows_of_calls_are_found(home: Path, sql: str) -> None:
    writer, _ = aged(home)
    with tampering(writer.home) as other:
        other.execute(sql)
    assert set(audit(writer)) == {"KEPT"}
    writer.close()


@promise("journal.retention-age")
def test_retention_seals_nothing_that_is_young_by_its_own_entry(home: Path) -> None:
    """Rows said that calls of a moment ago were old: retention removed them, its acts excused it, and all verified."""
    writer, _ = aged(home)
    with tampering(writer.home) as other:
        other.execute("UPDATE calls SET closed_unix_ms = 1")
    with pytest.raises(StateError, match="Entry 8 is younger than its row says: entries 0 to 8 stay"):
        seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    assert writer.rows("SELECT count(*) FROM entries WHERE body IS NULL") == [(0,)]
    writer.close()


@promise("journal.retention-age")
@pytest.mark.parametrize("attack", ["its row", "its file", "both"])
def test_retention_removes_no_sealed_file_that_is_young_or_not_what_was_sealed(home: Path, attack: str) -> None:
    writer, _ = aged(home)
    (segment,) = seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    if attack != "its file":
        with tampering(writer.home) as other:
            other.execute("UPDATE segments SET newest_unix_ms = 1")
    if attack != "its row":
        data = segment.path.read_bytes()
        segment.path.write_bytes(data.replace(b"%d" % (NOW - 4 * DAY + 5), b"%d" % (NOW - 9 * DAY), 1))
    before = NOW - (5 if attack != "its file" else 3) * DAY
    with pytest.raises(StateError, match="entries 0 to 6 stay"):
        drop_segments(writer, before_unix_ms=before, at_unix_ms=NOW)
    assert segment.path.exists()
    writer.close()


def test_nothing_is_sealed_that_was_changed_together_with_its_hash(home: Path) -> None:
    """Made old in the entry, its hash and its row, sealed, removed, and the hash put back: then nothing was found."""
    writer, _ = aged(home)
    (body,) = writer.rows("SELECT body FROM entries WHERE idx = 8")[0]
    older = body.replace(b"%d" % (NOW + 5), b"%d" % (NOW - 4 * DAY))
    assert older != body
    with tampering(writer.home) as other:
        other.execute("UPDATE calls SET closed_unix_ms = 1")
        other.execute("UPDATE entries SET body = ?, leaf_hash = ? WHERE idx = 8", (older, leaf_hash(older)))
    with pytest.raises(StateError, match="Entries are not those that were signed: entries 0 to 8 stay"):
        seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    assert writer.rows("SELECT count(*) FROM entries WHERE body IS NULL") == [(0,)]
    writer.close()


def test_an_act_taken_out_while_its_file_is_kept_is_found_before_the_file_goes(home: Path) -> None:
    writer, _ = aged(home)
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    with tampering(writer.home) as other:
        other.execute("UPDATE entries SET body = NULL WHERE idx = 3")
    assert [one.index for one in audit_home(writer.home).findings if one.code == "EDITED"] == [3]
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    assert audit(writer) == ["MISSING"]
    writer.close()


def test_the_act_of_a_removal_does_not_vanish_in_the_next_one(home: Path) -> None:
    """What would be counted by an act that is itself among what was removed next."""
    writer, store = aged(home)
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW - 3 * DAY)
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW - 3 * DAY)
    asyncio.run(call(store, run_spec(ulid()), at=NOW))
    seal_entries(writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    drop_segments(writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    assert audit(writer) == []
    entries = writer.rows("SELECT idx, body FROM entries WHERE body IS NOT NULL ORDER BY idx")
    sealed, pruned = [index for index, body in entries if b"segment/" in bytes(body)][:2]
    with tampering(writer.home) as other:
        other.execute("UPDATE entries SET body = NULL WHERE idx IN (3, ?, ?)", (sealed, pruned))
        other.execute("DELETE FROM deletions WHERE entry = ?", (pruned,))
    assert {"MISSING"} <= set(audit(writer))
    writer.close()


@promise("journal.retention-cover")
def test_a_removal_covers_nothing_that_came_after_it(home: Path) -> None:
    """A clock that went back made a later call look older than what retention had removed: so its records could be
    removed too, and nobody was told."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    asyncio.run(call(store, run, at=NOW))
    delete_records(writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW)
    asyncio.run(call(store, run, at=NOW - DAY))
    assert audit(writer) == []
    with tampering(writer.home) as other:
        other.execute("UPDATE calls SET details = NULL, outcome = NULL")
    assert [(one.code, one.index) for one in audit_home(writer.home).findings] == [("KEPT", 3), ("KEPT", 4)]
    writer.close()


@on_sqlite
def test_what_a_reader_keeps_in_the_log_is_not_said_to_be_gone(kept: tuple[Writer, JournalStore, list[str]]) -> None:
    """Who reads holds the old pages: they could not be overwritten, and the command said that they were."""
    writer, _, calls = kept
    secret = SECRET + calls[2].encode()
    with contextlib.closing(sqlite3.connect(writer.home.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchall()
        with pytest.raises(StateError, match="still lies in the log"):
            redact_call(writer, calls[2], actor="user:ops", reason="", at_unix_ms=NOW)
        assert secret in bytes_of(writer)
    assert delete_records(writer, before_unix_ms=0, at_unix_ms=NOW) == Removed()
    assert secret not in bytes_of(writer)
    assert audit(writer) == []


def test_approvals_whose_calls_retention_removed_go_on_verifying(home: Path) -> None:
    """The salts of what people were asked went with the calls, and an honest journal did not verify any more."""
    desk = Desk(home)

    async def scenario() -> None:
        grant = await desk.granted(question())
        call_id = await desk.run(question(), grant)
        decision = desk.opening(call_id, question(), grant).entry.predicate["decision"]
        closed = closing(call_id, run_spec(question().run_id))
        entry = replace(closed.entry, predicate={**closed.entry.predicate, "decision": decision})
        await desk.journal.close_call(replace(closed, entry=entry))

    asyncio.run(scenario())
    assert audit(desk.writer) == []
    seal_entries(desk.writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    drop_segments(desk.writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    assert audit(desk.writer) == []
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET binding = 'something else'")
    assert audit(desk.writer) == ["KEPT"]
    desk.writer.close()


@promise("journal.retained-approvals")
@pytest.mark.parametrize("scope", [Scope.ONCE, Scope.UNTIL])
def test_a_used_approval_is_not_made_good_again_where_retention_removed_its_call(home: Path, scope: Scope) -> None:
    """Its uses were compared with the calls that are left: with none, a yes for one call was good for another."""
    desk = Desk(home)
    until = NOW + 9 * DAY if scope is Scope.UNTIL else None

    async def scenario() -> None:
        grant = await desk.granted(question(), replace(YES, scope=scope, until_unix_ms=until))
        call_id = await desk.run(question(), grant)
        decision = desk.opening(call_id, question(), grant).entry.predicate["decision"]
        closed = closing(call_id, run_spec(question().run_id))
        entry = replace(closed.entry, predicate={**closed.entry.predicate, "decision": decision})
        await desk.journal.close_call(replace(closed, entry=entry))

    asyncio.run(scenario())
    seal_entries(desk.writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    drop_segments(desk.writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    assert audit(desk.writer) == []
    for uses in (0, 2):
        with tampering(desk.writer.home) as other:
            other.execute("UPDATE approvals SET uses = ?", (uses,))
        assert "differs from its entries: uses." in audit_home(desk.writer.home).findings[0].detail
    with tampering(desk.writer.home) as other:
        (name,) = other.execute("SELECT approval_id FROM approvals").fetchone()
        other.execute("DELETE FROM blobs WHERE sha256 = ?", (sha256(write_uses({name: 1})).digest(),))
    assert "What entry 5 tells of approvals whose uses it removed is gone." in [
        one.detail for one in audit_home(desk.writer.home).findings
    ]
    desk.writer.close()


@promise("journal.retained-approvals")
@pytest.mark.parametrize("change", ["SET workspace = '/'", "SET terms = x'7b7d'", None])
@pytest.mark.parametrize("again", [False, True], ids=["removed once", "removed again"])
def test_what_a_run_made_by_name_narrows_cannot_be_changed_where_retention_removed_its_calls(
    home: Path, change: str | None, again: bool
) -> None:
    writer, store = open_store(home)
    run, terms = run_spec(ulid()), b'{"nonce":"%s"}' % (b"ab" * 32)
    told = terms_sha256(run.run_id, run.principal, "/w", NOW, terms)
    row = (run.run_id, run.principal, "/w", terms, NOW)
    writer.commit_now(lambda tx: tx.execute("INSERT INTO run_terms VALUES (?, ?, ?, ?, ?, NULL)", row))
    asyncio.run(call(store, replace(run, terms_sha256=told), at=NOW - 5 * DAY))
    prune(writer)
    if again:  # a call of the operator's own tells of none
        asyncio.run(call(store, run, at=NOW - 4 * DAY))
        prune(writer)
    assert audit(writer) == []
    with tampering(writer.home) as other:
        other.execute(f"UPDATE run_terms {change}" if change else "DELETE FROM run_terms")
    found = [one.detail for one in audit_home(writer.home).findings]
    assert found == [f"The row of run {run.run_id} differs from its entries: terms."]
    writer.close()


def test_approvals_whose_salts_an_older_version_removed_go_on_verifying(home: Path) -> None:
    desk = Desk(home)
    asyncio.run(desk.granted(question()))
    asyncio.run(call(desk.journal, run_spec(ulid()), at=NOW))
    seal_entries(desk.writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    drop_segments(desk.writer, before_unix_ms=NOW + DAY, at_unix_ms=NOW + DAY)
    with tampering(desk.writer.home) as other:
        other.execute("DELETE FROM openings")
    assert audit(desk.writer) == []
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET state = 'denied'")
    assert audit(desk.writer) == ["KEPT"]
    desk.writer.close()


def test_a_run_whose_last_entries_retention_removed_behind_an_act_goes_on_verifying(home: Path) -> None:
    """An act of a run stays where its calls go: behind it the run's numbers seemed to be too few."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    asyncio.run(call(store, run, at=NOW - 5 * DAY))
    writer.commit_now(lambda tx: tx.append(act("run.looked_at", run.run_id), at_unix_ms=NOW - 5 * DAY))
    asyncio.run(call(store, run, at=NOW - 4 * DAY))
    asyncio.run(call(store, run_spec(ulid()), at=NOW))
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    assert audit(writer) == []
    with tampering(writer.home) as other:
        other.execute("UPDATE runs SET next_sequence = 2 WHERE run_id = ?", (run.run_id,))
    assert audit(writer) == ["KEPT"]
    writer.close()


@promise("journal.retention-cover")
@pytest.mark.parametrize("hash_", ["x''", "NULL", "x'00'", "'text'"])
def test_a_hash_taken_out_where_retention_had_been_hides_no_edit(home: Path, hash_: str) -> None:
    """Of what retention removed the hash alone is left. Where one was no hash, the tree was not made again, without a
    word, and any entry could be rewritten with its own hash and no key."""
    writer, _ = aged(home)
    seal_entries(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    drop_segments(writer, before_unix_ms=NOW - DAY, at_unix_ms=NOW)
    assert audit(writer) == []
    body = writer.rows("SELECT body FROM entries WHERE idx = 3")[0][0].replace(b"user:operator", b"user:somebody")
    with tampering(writer.home) as other:
        other.execute(f"UPDATE entries SET leaf_hash = {hash_} WHERE idx = 0")
        other.execute("UPDATE entries SET body = ?, leaf_hash = ? WHERE idx = 3", (body, leaf_hash(body)))
    assert [(one.code, one.index) for one in audit_home(writer.home).findings] == [("EDITED", 0)]
    writer.close()


def test_others_write_while_many_records_are_removed(
    kept: tuple[Writer, JournalStore, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them went in one commit: from some hundred thousand on it took longer than anybody waits for a turn, and
    calls of the home were refused."""
    writer, store, calls = kept
    monkeypatch.setattr(retention, "CALLS_AT_ONCE", 1)
    monkeypatch.setattr(retention.time, "sleep", lambda _: many_acts(writer, 1))
    assert delete_records(writer, before_unix_ms=NOW - 1, at_unix_ms=NOW) == Removed(calls=2, blobs=4, openings=10)
    told = [entry.body for entry in store.tail(100) if b"records.deleted" in entry.body]
    assert [orjson.loads(body)["predicate"]["details"]["calls"] for body in told] == [1, 1]
    assert all(SECRET + call_id.encode() not in bytes_of(writer) for call_id in calls[:2])
    assert audit_home(writer.home).findings == ()


# ── between the steps, and two at once ───────────────────────────────────────


def old_calls(home: Path, oldest: int = 2) -> tuple[Writer, JournalStore]:
    """Calls of four days ago, two of two days ago, and one of now."""
    writer, store = open_store(home)
    run = run_spec(ulid())
    for days in (*[4] * oldest, 2, 2, 0):
        asyncio.run(call(store, run, at=NOW - days * DAY))
    return writer, store


@on_sqlite
def test_two_retentions_at_once_lose_no_entry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second emptied the very file that the first was writing, and ended before it had filled it again: what was
    taken out of the database was nowhere any more."""
    first, _ = old_calls(home, 20)  # more than is written at once
    second = Writer.open(home)
    began, is_over, real = threading.Event(), threading.Event(), segments._bodies

    def seal_too() -> None:
        with contextlib.suppress(StateError):
            seal_entries(second, before_unix_ms=NOW - 3 * DAY, at_unix_ms=NOW)

    thread = threading.Thread(target=seal_too)

    def bodies(writer: Writer, *given: Any) -> Iterator[bytes]:
        for count, body in enumerate(real(writer, *given)):
            yield body
            if writer is second:
                began.set()
                is_over.wait(30)
                raise StateError("It ends here.")
            if count == 30:
                thread.start()
                began.wait(0.5)

    monkeypatch.setattr(segments, "_bodies", bodies)
    seal_entries(first, before_unix_ms=NOW - 3 * DAY, at_unix_ms=NOW)
    is_over.set()
    thread.join()
    second.close()
    report = audit_home(first.home, every=True)
    assert (report.findings, report.pruned) == ((), 0)
    assert [path.name for path in first.home.segments.iterdir()] == ["000000000000-000000000039.jsonl"]
    first.close()


@on_sqlite
@pytest.mark.parametrize("at", ["sealing", "removing"])
def test_what_a_crash_left_in_sealed_files_is_gone_with_the_next_retention(
    home: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody referred to that file, so nobody ever removed it: what retention had promised to remove lay there."""
    writer, _ = old_calls(home)
    older, newer = NOW - 3 * DAY, NOW - DAY
    with monkeypatch.context() as patch:
        if at == "removing":
            seal_entries(writer, before_unix_ms=older, at_unix_ms=NOW)
            patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        else:
            patch.setattr(writer, "commit_now", lambda _: 1 / 0)  # the file is there
        retain = drop_segments if at == "removing" else seal_entries
        with pytest.raises(ZeroDivisionError):
            retain(writer, before_unix_ms=older, at_unix_ms=NOW)
    (left,) = writer.home.segments.glob("*.jsonl")
    assert SECRET not in left.read_bytes()
    assert left.name == "000000000000-000000000003.jsonl"
    drop_segments(writer, before_unix_ms=older, at_unix_ms=NOW)
    seal_entries(writer, before_unix_ms=newer, at_unix_ms=NOW)
    found = sorted(path.name for path in writer.home.segments.iterdir())
    assert found == (["000000000004-000000000007.jsonl"] if at == "removing" else ["000000000000-000000000007.jsonl"])
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()


def test_an_entry_that_was_sealed_a_moment_ago_is_shown_by_who_has_read_sealed_ones_before(home: Path) -> None:
    """A process that lives on knew the files of its first question alone: a call that was sent again got an error."""
    writer, store = old_calls(home)
    calls = [call_id for (call_id,) in writer.rows("SELECT call_id FROM calls ORDER BY result_index")]
    for days in (3, 1):
        seal_entries(writer, before_unix_ms=NOW - days * DAY, at_unix_ms=NOW)
        for call_id in calls:
            assert [entry.body != b"" for entry in store.by_call(call_id)] == [True, True]
    writer.close()
