"""Calls opened, closed, found again; and a database edited behind the journal's back."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from palyra.errors import DuplicateCall, Reason, Rejected, StateError
from palyra.journal.acts import Act, ActKind
from palyra.journal.checkpoint import open_checkpoint
from palyra.journal.commitments import commit_value
from palyra.journal.entry import parse_entry
from palyra.journal.merkle import inclusion_proof, leaf_hash, root_of, verify_inclusion
from palyra.journal.store import JournalRows, JournalStore
from palyra.model.record import Recorded
from palyra.state.db import open_home
from palyra.state.schema import PAGE_BYTES
from palyra.state.sharing import TURNS_TO_GATHER
from palyra.state.writer import Writer
from tests.journaling import NOW, OWNER, attested, audit_home, closing, open_store, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import on_sqlite, open_writer, snapshot, tampering

RUN = run_spec(ulid())
ACT = Act(kind=ActKind.POLICY_USED, actor="user:operator", subject="policy")


@pytest.fixture
def journal(home: Path) -> Iterator[tuple[Writer, JournalStore]]:
    writer, store = open_store(home)
    yield writer, store
    writer.close()


async def walk(store: JournalStore, call_id: str, run=RUN) -> Recorded:
    await store.open_call(opening(call_id, run))
    return await store.close_call(closing(call_id, run))


def test_a_call_leaves_an_intent_and_a_result(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()
    recorded = asyncio.run(walk(store, call_id))
    assert (recorded.receipt.index, recorded.receipt.tree_size) == (1, 2)
    assert (recorded.budget.calls_used, recorded.budget.calls_max) == (1, 1000)
    views = [parse_entry(entry.body) for entry in store.by_call(call_id)]
    assert [(view.kind, view.index, view.sequence) for view in views] == [
        ("urn:palyra:intent:v1", 0, 0),
        ("urn:palyra:result:v1", 1, 1),
    ]
    assert set(views[0].predicate["commitments"]) == {"input", "plan", "details"}
    assert set(views[1].predicate["commitments"]) == {"output", "outcome"}
    assert audit_home(writer.home, every=True).findings == ()


def test_a_receipt_is_signed_and_its_inclusion_can_be_proved(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal

    async def scenario() -> Recorded:
        await walk(store, ulid())
        return await walk(store, ulid())

    receipt = asyncio.run(scenario()).receipt
    signed = open_checkpoint(receipt.checkpoint, writer.home.verifier)
    with snapshot(writer.home) as connection:
        rows = JournalRows(connection)
        leaf = next(rows.leaves(receipt.index, receipt.index + 1))
        proof = inclusion_proof(receipt.index, signed.size, lambda first, end: root_of(rows.leaves(first, end)))
    assert verify_inclusion(leaf, receipt.index, signed.size, proof, signed.root)


def test_an_open_call_is_found_with_its_owner_and_a_closed_one_with_its_outcome(
    journal: tuple[Writer, JournalStore],
) -> None:
    writer, store = journal
    call_id = ulid()

    async def scenario() -> None:
        assert await store.find_call(call_id) is None
        await store.open_call(opening(call_id, RUN, details=b"details"))
        found = await store.find_call(call_id)
        assert found is not None
        assert (found.status, found.owner, found.details, found.outcome, found.recorded) == (
            "open",
            OWNER,
            b"details",
            b"",
            None,
        )
        assert [call.call_id for call in await store.open_calls()] == [call_id]
        closed = attested(writer, closing(call_id, RUN))
        await store.close_call(closed)
        found = await store.find_call(call_id)
        assert found is not None
        assert (found.status, found.outcome, found.principal) == ("completed", closed.outcome, "agent:demo")
        assert found.recorded is not None
        assert (found.recorded.receipt.index, found.intent_index, found.result_index) == (1, 0, 1)
        assert await store.open_calls() == ()

    asyncio.run(scenario())


def test_a_call_id_is_claimed_once(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()

    async def scenario() -> None:
        await walk(store, call_id)
        with pytest.raises(DuplicateCall):
            await store.open_call(opening(call_id, RUN))
        with pytest.raises(DuplicateCall):
            await store.close_call(closing(call_id, RUN))
        with pytest.raises(DuplicateCall):
            await store.close_call(closing(call_id, RUN, opened=False))

    asyncio.run(scenario())
    assert [len(store.tail(100)), audit_home(writer.home).findings] == [2, ()]


def test_of_many_openings_with_one_id_one_wins(journal: tuple[Writer, JournalStore]) -> None:
    _, store = journal
    call_id = ulid()

    async def scenario() -> list[object]:
        many = (store.open_call(opening(call_id, RUN)) for _ in range(20))
        return await asyncio.gather(*many, return_exceptions=True)

    answers = asyncio.run(scenario())
    assert [isinstance(answer, DuplicateCall) for answer in answers].count(False) == 1
    assert len(store.tail(100)) == 1


def test_a_refusal_is_one_entry_and_spends_an_attempt(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()

    async def scenario() -> None:
        recorded = await store.close_call(attested(writer, closing(call_id, RUN, opened=False)))
        assert (recorded.receipt.index, recorded.budget.calls_used, recorded.budget.calls_max) == (0, 0, 1000)
        assert (await store.budget(RUN.run_id)).counts == (0, 1000, 1, 1000)
        found = await store.find_call(call_id)
        assert found is not None
        assert (found.status, found.reason, found.intent_index) == ("refused", "POLICY_DENIED", None)

    asyncio.run(scenario())
    assert audit_home(writer.home).findings == ()


def test_refusals_are_counted_past_their_limit(journal: tuple[Writer, JournalStore]) -> None:
    _, store = journal
    run = run_spec(ulid(), attempts_max=2)

    async def scenario() -> None:
        for _ in range(5):
            await store.close_call(closing(ulid(), run, opened=False))
        assert (await store.budget(run.run_id)).counts == (0, 1000, 5, 2)

    asyncio.run(scenario())


def test_bytes_that_never_became_a_call_claim_no_id(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()

    async def scenario() -> None:
        await store.close_call(closing(call_id, RUN, opened=False, keep_call=False))
        await store.close_call(closing(call_id, RUN, opened=False, keep_call=False))
        assert await store.find_call(call_id) is None
        await walk(store, call_id)

    asyncio.run(scenario())
    assert (len(store.tail(10)), audit_home(writer.home).findings) == (4, ())


def test_another_principals_run_is_refused_and_costs_it_nothing(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    theirs = run_spec(RUN.run_id, principal="agent:other")

    async def scenario() -> None:
        await walk(store, ulid())
        with pytest.raises(Rejected) as refused:
            await store.open_call(opening(ulid(), theirs))
        assert refused.value.reason is Reason.CAPABILITY_DENIED
        recorded = await store.close_call(closing(ulid(), theirs, opened=False))
        assert (recorded.budget.calls_used, recorded.receipt.index) == (0, 2)
        assert (await store.budget(RUN.run_id)).counts == (1, 1000, 0, 1000)

    asyncio.run(scenario())
    assert audit_home(writer.home).findings == ()


def test_a_result_without_an_intent_is_not_written(journal: tuple[Writer, JournalStore]) -> None:
    _, store = journal

    async def scenario() -> None:
        await walk(store, ulid())
        with pytest.raises(StateError):
            await store.close_call(closing(ulid(), RUN, opened=True))

    asyncio.run(scenario())
    assert len(store.tail(10)) == 2


def test_a_call_cancelled_between_commit_and_answer_is_closed_as_opened(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id, other = ulid(), ulid()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        await store.open_call(opening(other, RUN))  # alone, a call is committed without a turn of the loop
        writer._sharing._last_batch = 2  # as if several had come together: the next waits for others
        task = loop.create_task(store.open_call(opening(call_id, RUN)))
        for _ in range(1 + TURNS_TO_GATHER):  # the task waits; the commit is next in the loop
            await asyncio.sleep(0)
        loop.call_soon(task.cancel)  # right after it
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await store.find_call(call_id)
        assert found is not None
        assert found.status == "open"
        late = closing(call_id, RUN, opened=False)
        committed = (*late.entry.commitments, commit_value("details", b"others", bytes(32)))
        await store.close_call(replace(late, entry=replace(late.entry, commitments=committed)))
        await store.close_call(closing(other, RUN))

    asyncio.run(scenario())
    views = [parse_entry(entry.body) for entry in store.by_call(call_id)]
    assert [view.kind.split(":")[2] for view in views] == ["intent", "result"]
    assert views[1].predicate["opened"] is True
    assert audit_home(writer.home).findings == ()


def test_a_call_cancelled_before_its_commit_leaves_nothing(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal

    async def scenario() -> None:
        await store.open_call(opening(ulid(), RUN))
        writer._sharing._last_batch = 2  # as if several had come together: the next waits for others
        task = asyncio.get_running_loop().create_task(store.open_call(opening(ulid(), RUN)))
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert len(store.tail(10)) == 1


@on_sqlite
def test_a_call_alone_is_closed_at_once_and_one_of_several_shares_its_commit(
    journal: tuple[Writer, JournalStore],
) -> None:
    writer, store = journal
    first, second = ulid(), ulid()

    async def scenario() -> None:
        await store.open_call(opening(first, RUN))
        assert store.close_now(closing(second, RUN)) is None, "another call is open, and this one is not"
        await store.open_call(opening(second, RUN))
        assert store.close_now(closing(first, RUN)) is None, "both can share a commit"
        await store.close_call(closing(first, RUN))
        assert store.close_now(closing(second, RUN)) is not None
        assert store.close_now(closing(second, RUN)) is None, "it is closed"

    asyncio.run(scenario())
    assert [len(store.by_call(call_id)) for call_id in (first, second)] == [2, 2]
    assert audit_home(writer.home).findings == ()


def test_tails_page_backwards(journal: tuple[Writer, JournalStore]) -> None:
    _, store = journal

    async def scenario() -> None:
        for _ in range(7):
            await store.record_act(ACT, at_unix_ms=NOW)

    asyncio.run(scenario())
    pages = [[entry.index for entry in store.tail(3, before=before)] for before in (None, 4, 1)]
    assert pages == [[4, 5, 6], [1, 2, 3], [0]]
    newest = store.checkpoint()
    assert newest is not None
    assert newest.size == 7
    assert store.entry(3) == store.tail(1, before=4)[0]
    assert store.entry(99) is None


# ── edited behind our back ───────────────────────────────────────────────────


def tampered(home: Path, sql: str) -> list[tuple[str, int | None]]:
    """Three calls and a refusal, then one statement by somebody else; what the audit finds."""
    writer, store = open_store(home)

    async def scenario() -> None:
        for _ in range(3):
            await walk(store, ulid())
        await store.close_call(closing(ulid(), RUN, opened=False))

    asyncio.run(scenario())
    with tampering(writer.home) as other:
        assert other.execute(sql).rowcount > 0
    findings = [(finding.code, finding.index) for finding in audit_home(writer.home).findings]
    writer.close()
    return findings


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("DELETE FROM entries WHERE idx = 2", ("MISSING", 2)),
        ("DELETE FROM entries WHERE idx = 6", ("TRUNCATED", 6)),
        ("UPDATE entries SET body = replace(body, 'palyra.echo', 'palyra.exho') WHERE idx = 3", ("EDITED", 3)),
        ("UPDATE entries SET body = CAST(replace(body, ':demo', ':demu') AS BLOB) WHERE idx = 3", ("EDITED", 3)),
        ("UPDATE entries SET body = NULL WHERE idx = 3", ("EDITED", 3)),
        ("UPDATE entries SET leaf_hash = 'text' WHERE idx = 3", ("EDITED", 3)),
        ("UPDATE checkpoints SET note = NULL WHERE size = 7", ("CHECKPOINT", 6)),
        ("UPDATE entries SET body = x'7b7d' WHERE idx = 3", ("EDITED", 3)),
        ("UPDATE entries SET leaf_hash = zeroblob(32) WHERE idx = 4", ("EDITED", 4)),
        ("UPDATE entries SET idx = 77 WHERE idx = 4", ("MISSING", 4)),
        ("UPDATE entries SET body = (SELECT body FROM entries WHERE idx = 1), leaf_hash = "
         "(SELECT leaf_hash FROM entries WHERE idx = 1) WHERE idx = 5", ("MOVED", 5)),
        ("INSERT INTO entries SELECT 7, leaf_hash, body FROM entries WHERE idx = 6", ("MOVED", 7)),
        ("DELETE FROM entries", ("TRUNCATED", 0)),
        ("UPDATE checkpoints SET note = substr(note, 1, length(note) - 12) || 'AAAAAAAAAA=' || char(10)", None),
        ("DELETE FROM checkpoints WHERE size = 7", ("UNSIGNED", 6)),
        ("DELETE FROM checkpoints", ("UNSIGNED", 0)),
        ("UPDATE checkpoints SET size = 8 WHERE size = 7", ("CHECKPOINT", 7)),
        ("UPDATE head SET size = 6", ("HEAD", None)),
        ("UPDATE head SET frontier = zeroblob(96)", ("HEAD", None)),
        ("DELETE FROM head", ("HEAD", None)),
        ("UPDATE blobs SET data = x'00' WHERE data = CAST('{\"output\":{}}' AS BLOB)", ("KEPT", 1)),
        ("UPDATE calls SET principal = 'agent:thief' WHERE result_index = 3", ("KEPT", 2)),
        ("UPDATE calls SET status = 'completed' WHERE status = 'refused'", ("KEPT", 6)),
        ("UPDATE calls SET outcome = details WHERE result_index = 5", ("KEPT", 5)),
        ("UPDATE openings SET salt = zeroblob(32) WHERE entry = 1 AND field = 'outcome'", ("KEPT", 1)),
        ("DELETE FROM calls WHERE result_index = 5", ("KEPT", 5)),
        ("DELETE FROM openings WHERE entry = 1 AND field = 'outcome'", ("KEPT", 1)),
        ("INSERT INTO entries SELECT -1, leaf_hash, body FROM entries WHERE idx = 6", ("ORDER", -1)),
        ("UPDATE calls SET intent_index = 0 WHERE status = 'refused'", ("KEPT", 6)),
        ("UPDATE calls SET owner_pid = 1 WHERE result_index = 3", ("KEPT", 2)),
        ("UPDATE runs SET calls_used = 0", ("KEPT", None)),
        ("UPDATE runs SET attempts_used = 0", ("KEPT", None)),
        ("UPDATE runs SET principal = 'agent:thief'", ("KEPT", None)),
        ("UPDATE runs SET calls_max = calls_max + 1", ("KEPT", None)),
        ("UPDATE runs SET attempts_max = 1000000", ("KEPT", None)),
        ("UPDATE runs SET wall_us_used = -1000000", ("KEPT", None)),
        ("UPDATE runs SET fuel_max = 1", ("KEPT", None)),
        ("INSERT INTO runs (run_id, principal, workspace, calls_used, calls_max, attempts_used, attempts_max, "
         "created_unix_ms) SELECT 'forged', principal, workspace, 0, 1, 0, 1, 0 FROM runs", ("KEPT", None)),
        ("INSERT INTO calls SELECT 'forged', run_id, tool, principal, input_sha256, status, reason, NULL, NULL, NULL, "
         "details, outcome, intent_index, result_index, opened_unix_ms, closed_unix_ms FROM calls LIMIT 1",
         ("KEPT", None)),
    ],
)  # fmt: skip
def test_a_row_changed_by_somebody_else_is_found(home: Path, sql: str, finding: tuple[str, int | None] | None) -> None:
    findings = tampered(home, sql)
    assert findings
    if finding is not None:
        assert finding in findings


def test_a_changed_outcome_is_never_handed_out(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()
    asyncio.run(walk(store, call_id))
    with tampering(writer.home) as other:
        other.execute("UPDATE blobs SET data = x'00'")
    with pytest.raises(StateError, match="stored record"):
        asyncio.run(store.find_call(call_id))


def test_a_forged_outcome_without_its_opening_is_never_handed_out(journal: tuple[Writer, JournalStore]) -> None:
    """Also where the forger takes the trouble to commit to it in an entry: it is not attested."""
    writer, store = journal
    call_id = ulid()

    async def scenario() -> None:
        await store.open_call(opening(call_id, RUN))
        await store.close_call(attested(writer, closing(call_id, RUN)))

    asyncio.run(scenario())
    assert asyncio.run(store.find_call(call_id)) is not None
    forged = b'{"output":{"approved":true}}'
    with tampering(writer.home) as other:
        other.execute("INSERT INTO blobs VALUES (?, ?, 0)", (sha256(forged).digest(), forged))
        other.execute("UPDATE calls SET outcome = ?", (sha256(forged).digest(),))
        other.execute("DELETE FROM openings WHERE entry = 1 AND field = 'outcome'")
    with pytest.raises(StateError, match="stored record"):
        asyncio.run(store.find_call(call_id))
    assert ("KEPT", 1) in [(finding.code, finding.index) for finding in audit_home(writer.home).findings]
    with tampering(writer.home) as other:
        (body,) = other.execute("SELECT body FROM entries WHERE idx = 1").fetchone()
        said = orjson.loads(body)
        said["predicate"]["commitments"]["outcome"] = commit_value("outcome", forged, bytes(32)).mac
        body = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
        other.execute("UPDATE entries SET body = ?, leaf_hash = ? WHERE idx = 1", (body, leaf_hash(body)))
        other.execute("INSERT INTO openings VALUES (1, 'outcome', NULL, zeroblob(32))")
    with pytest.raises(StateError, match="stored record"):
        asyncio.run(store.find_call(call_id))


def test_an_intent_edited_together_with_its_leaf_hash_is_not_proven(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()

    async def intents() -> list[str]:
        return list(await store.find_intents(await store.open_calls()))

    asyncio.run(store.open_call(opening(call_id, RUN)))
    assert asyncio.run(intents()) == [call_id]
    with tampering(writer.home) as other:
        (body,) = other.execute("SELECT body FROM entries").fetchone()
        body = body.replace(b'"allow"', b'"alloy"')
        other.execute("UPDATE entries SET body = ?, leaf_hash = ?", (body, leaf_hash(body)))
    assert asyncio.run(intents()) == []


@promise("journal.closed-once")
@pytest.mark.parametrize(
    "hides", [None, "UPDATE entries SET body = x'00' WHERE idx = 1", "UPDATE entries SET body = NULL"]
)
def test_a_call_that_has_ended_is_not_closed_again_because_its_row_says_it_is_open(
    journal: tuple[Writer, JournalStore], hides: str | None
) -> None:
    """The next start signed that it was interrupted: a proof said so to anybody, and the journal never verified again.
    A call beside it, which is open, is closed all the same."""
    writer, store = journal
    calls = [ulid(), ulid()]
    asyncio.run(walk(store, calls[0]))
    asyncio.run(store.open_call(opening(calls[1], RUN)))
    with tampering(writer.home) as other:
        other.execute("UPDATE calls SET status = 'open', result_index = NULL WHERE call_id = ?", (calls[0],))
        if hides is not None:
            other.execute(f"{hides} {'WHERE' if 'WHERE' not in hides else 'AND'} idx < 2")

    async def intents() -> list[str]:
        return list(await store.find_intents(await store.open_calls()))

    assert asyncio.run(intents()) == [calls[1]]


def test_entries_before_the_first_are_not_shown(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    call_id = ulid()
    asyncio.run(walk(store, call_id))
    with tampering(writer.home) as other:
        other.execute("INSERT INTO entries SELECT -1, leaf_hash, body FROM entries WHERE idx = 0")
        other.execute("UPDATE calls SET intent_index = -1")
    assert [entry.index for entry in (*store.tail(10), *store.by_call(call_id))] == [0, 1, 1]


def test_a_trigger_is_refused_at_the_start_and_found_by_the_audit(home: Path) -> None:
    writer, store = open_store(home)
    asyncio.run(walk(store, ulid()))
    writer.close()
    with tampering(writer.home) as other:
        other.execute("CREATE TRIGGER free AFTER UPDATE ON runs BEGIN UPDATE runs SET calls_used = 0; END")
    with pytest.raises(StateError, match="trigger free"):
        open_writer(home)
    assert [finding.code for finding in audit_home(writer.home).findings] == ["SCHEMA"]


@on_sqlite
def test_a_damaged_database_is_a_finding_or_a_refusal_and_never_a_crash(home: Path) -> None:
    writer, store = open_store(home)

    async def scenario() -> None:
        for _ in range(60):
            await walk(store, ulid())

    asyncio.run(scenario())
    writer.close()
    whole = writer.home.database.read_bytes()
    for page in range(len(whole) // PAGE_BYTES):
        damaged = bytearray(whole)
        damaged[page * PAGE_BYTES + 8 : page * PAGE_BYTES + 600] = bytes(range(256)) * 2 + bytes(80)
        writer.home.database.write_bytes(damaged)
        try:
            found, connection = open_home(home)
            connection.close()
        except StateError:
            continue
        report = audit_home(found)
        if not report.sound:
            assert all(finding.detail for finding in report.findings)
    assert page > 20


@promise("journal.unreadable-values")
@on_sqlite
@pytest.mark.parametrize(
    "change",
    [
        "approvals SET shown = NULL",
        "approvals SET binding = x'ff00'",
        "deletions SET first = NULL, act = 'entries.pruned'",
        "segments SET count = NULL",
        "witnesses SET place = NULL",
        "tokens SET workspace = NULL",
        "skills SET entry = NULL",
        "runs SET next_sequence = 'many'",
        "reservations SET wall_us = NULL",
    ],
)
def test_a_value_that_no_column_takes_is_a_finding_and_ends_no_audit(
    journal: tuple[Writer, JournalStore], change: str
) -> None:
    """A table refuses it, but not who edits the file: reading it ended the audit with an error instead."""
    writer, store = journal
    asyncio.run(walk(store, ulid()))
    with loosened(writer, table := change.split()[0]) as other:
        if table != "runs":
            kinds = {"TEXT": "'x'", "BLOB": "x'00'", "INTEGER": "1"}
            columns = other.execute(f"PRAGMA table_info({table})").fetchall()
            values = (
                "'pending'" if name == "state" else "NULL" if name == "scope" else kinds[kind]
                for _, name, kind, *_ in columns
            )
            other.execute(f"INSERT INTO {table} VALUES ({', '.join(values)})")
        other.execute(f"UPDATE {change}")
        if table == "segments":
            other.execute("UPDATE entries SET body = NULL WHERE idx = 1")
    assert {found.code for found in audit_home(writer.home).findings} & {"UNREADABLE", "KEPT"}


@contextlib.contextmanager
def loosened(writer: Writer, table: str) -> Iterator[sqlite3.Connection]:
    """The table without its rules, and then with them again, as if nothing had been."""
    with contextlib.closing(sqlite3.connect(writer.home.database, isolation_level=None)) as other:
        (text,) = other.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        loose = text.replace(" STRICT, WITHOUT", " WITHOUT").replace(") STRICT", ")").replace(" NOT NULL", "")
    for spelled in (loose, text):
        with contextlib.closing(sqlite3.connect(writer.home.database, isolation_level=None)) as other:
            other.execute("PRAGMA writable_schema = ON")
            other.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (spelled, table))
        if spelled is loose:
            with contextlib.closing(sqlite3.connect(writer.home.database, isolation_level=None)) as other:
                yield other


@pytest.mark.parametrize("place", [-5, (1 << 53) - 1])
def test_an_entry_that_says_an_impossible_place_is_a_finding_and_ends_no_audit(
    journal: tuple[Writer, JournalStore], place: int
) -> None:
    """With openings at that place, the pad over them was worked out for a number below zero, which is an error."""
    writer, store = journal
    for _ in range(2):
        asyncio.run(walk(store, ulid()))
    with tampering(writer.home) as other:
        (body,) = other.execute("SELECT body FROM entries WHERE idx = 2").fetchone()
        body = body.replace(b'"index":2', b'"index":%d' % place)
        other.execute("UPDATE entries SET body = ?, leaf_hash = ? WHERE idx = 2", (body, leaf_hash(body)))
        other.execute("INSERT INTO openings SELECT ?, field, run_id, salt FROM openings WHERE entry = 2", (place,))
    assert [found.code for found in audit_home(writer.home).findings] == ["MOVED", "TREE", "KEPT", "KEPT"]


def test_a_table_that_is_gone_is_a_finding(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    asyncio.run(walk(store, ulid()))
    with tampering(writer.home) as other:
        other.execute("DROP TABLE blobs")
    assert "UNREADABLE" in [finding.code for finding in audit_home(writer.home).findings]


def test_a_damaged_checkpoint_is_never_handed_out(journal: tuple[Writer, JournalStore]) -> None:
    writer, store = journal
    asyncio.run(walk(store, ulid()))
    for value in ("NULL", "'nonsense'"):
        with tampering(writer.home) as other:
            other.execute(f"UPDATE checkpoints SET note = {value}")
        with pytest.raises(StateError, match="damaged"):
            store.checkpoint()
