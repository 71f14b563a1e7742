"""Labels stay with their run over restarts; counters count the last minute; nobody marks another's run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palyra.api import AsyncPalyra
from palyra.errors import Reason
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import MAX_COUNTED, RunFacts, RunLabel
from palyra.state.transaction import Transaction
from palyra.testing import FakeClock
from palyra.wiring.run_facts import _FACTS, _SPARE, Counting, RunFactsStore
from tests.journaling import audit_home, ulid
from tests.promises import promise
from tests.stores import on_sqlite, open_writer, tampering

RUN = ulid(5)
OWNER, OTHER = ProcessOwner(RUN, "agent:demo"), ProcessOwner(RUN, "agent:other")


def test_a_label_outlives_the_process_and_is_one_principals_own(tmp_path: Path):
    clock = FakeClock()
    for _ in range(2):  # the second time it is there already
        writer = open_writer(tmp_path / "home")
        asyncio.run(RunFactsStore(writer, clock).mark(OWNER, ulid(6), [RunLabel.HAS_USED_SECRET]))
        writer.close()
    writer = open_writer(tmp_path / "home")
    facts = RunFactsStore(writer, clock)
    assert facts.read(OWNER) == RunFacts(labels=frozenset({RunLabel.HAS_USED_SECRET}))
    assert facts.read(OTHER) == facts.read(ProcessOwner(ulid(7), "agent:demo")) == RunFacts()
    writer.close()


def test_calls_and_denials_of_the_last_minute_are_counted(tmp_path: Path, workspace: Path):
    async def work() -> tuple[RunFacts, RunFacts]:
        async with AsyncPalyra(str(tmp_path / "home")) as palyra:
            run = palyra.run("agent:demo", workspace)
            for number in range(3):
                await run.call("palyra.echo", {"n": number})
            await run.call("palyra.process.run", {"command": "bash"})
            owner = ProcessOwner(run.run_id, "agent:demo")
            ports = palyra.installation.ports
            clock = FakeClock(ports.clock.now_unix_ms() + 61_000)
            return ports.run_facts.read(owner), RunFactsStore(palyra.installation.writer, clock).read(owner)

    now, later = asyncio.run(work())
    assert now == RunFacts(calls_last_minute=4, denials_last_minute=1)
    assert later == RunFacts()


def test_what_somebody_else_sends_under_a_run_counts_for_them_alone(tmp_path: Path, workspace: Path):
    async def work() -> tuple[RunFacts, RunFacts]:
        async with AsyncPalyra(str(tmp_path / "home")) as palyra:
            mine = palyra.run("agent:demo", workspace)
            for number in range(3):
                await mine.call("palyra.echo", {"n": number})
            await mine.call("palyra.process.run", {"command": "bash"})
            theirs = palyra.run("agent:other", workspace, run_id=mine.run_id)
            for number in range(2):
                assert (await theirs.call("palyra.echo", {"n": number})).reason is Reason.CAPABILITY_DENIED
            read = palyra.installation.ports.run_facts.read
            return read(ProcessOwner(mine.run_id, "agent:demo")), read(ProcessOwner(mine.run_id, "agent:other"))

    assert asyncio.run(work()) == (
        RunFacts(calls_last_minute=4, denials_last_minute=1),
        RunFacts(calls_last_minute=2, denials_last_minute=2),
    )


@on_sqlite
def test_counting_reads_indexes_alone(tmp_path: Path):
    writer = open_writer(tmp_path / "home")
    given = (RUN, *Counting(OWNER, 1).asked)
    steps = [row[3] for row in writer.rows(f"EXPLAIN QUERY PLAN {_FACTS}", given)]
    touching = [step for step in steps if " calls " in step]
    assert len(touching) == 2
    assert all("COVERING INDEX" in step for step in touching), touching
    writer.close()


@pytest.mark.parametrize(
    ("made", "others"),
    [(0, 5), (MAX_COUNTED - 1, 5), (MAX_COUNTED + 7, _SPARE), (MAX_COUNTED + 7, 90), (MAX_COUNTED - 90, 190)],
)
def test_a_busy_run_is_counted_exactly_up_to_where_counting_ends(tmp_path: Path, made: int, others: int):
    """Refused calls, the run's own and others', never take the place of one that was made."""
    writer, clock = open_writer(tmp_path / "home"), FakeClock()
    statuses = (
        [("agent:demo", "completed")] * made + [("agent:demo", "refused")] + [("agent:other", "refused")] * others
    )
    values = [(ulid(100 + at), RUN, *one) for at, one in enumerate(statuses)]

    def work(tx: Transaction) -> None:
        tx.execute(
            "INSERT INTO runs (run_id, principal, workspace, calls_max, attempts_max, created_unix_ms, calls_used,"
            " next_sequence, attempts_used) VALUES (?, 'agent:demo', '', 1, 1, 0, 0, 0, 0)",
            (RUN,),
        )
        for call_id, run_id, principal, status in values:
            tx.execute(
                "INSERT INTO calls (call_id, run_id, principal, status, tool, input_sha256, opened_unix_ms)"
                " VALUES (?, ?, ?, ?, 't', '', ?)",
                (call_id, run_id, principal, status, clock.now_unix_ms()),
            )

    writer.commit_now(work)
    read = RunFactsStore(writer, clock).read
    assert read(OWNER) == RunFacts(calls_last_minute=min(made + 1, MAX_COUNTED), denials_last_minute=1)
    assert read(OTHER) == RunFacts(calls_last_minute=others, denials_last_minute=others)
    writer.close()


@promise("journal.run-labels")
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM run_labels",
        "UPDATE run_labels SET principal = 'agent:other'",
        "UPDATE run_labels SET run_id = 'another'",
        "UPDATE run_labels SET label = 'has_received_outside_content'",
    ],
)
def test_a_label_that_somebody_took_off_a_run_is_found(tmp_path: Path, sql: str):
    """Without it, nobody is asked any more before what the run read goes out."""
    writer = open_writer(tmp_path / "home")
    facts = RunFactsStore(writer, FakeClock())
    for _ in range(2):  # told once
        asyncio.run(facts.mark(OWNER, ulid(6), [RunLabel.HAS_USED_SECRET]))
    assert writer.rows("SELECT count(*) FROM entries") == [(1,)]
    assert audit_home(writer.home).findings == ()
    with tampering(writer.home) as other:
        other.execute(sql)
    assert {one.code for one in audit_home(writer.home).findings} == {"KEPT"}
    writer.close()


def test_labels_that_an_older_version_set_without_a_word_go_on_verifying(tmp_path: Path):
    writer = open_writer(tmp_path / "home")
    row = (RUN, "agent:demo", "has_used_secret", ulid(6), 1)
    writer.commit_now(lambda tx: tx.execute("INSERT INTO run_labels VALUES (?, ?, ?, ?, ?)", row))
    asyncio.run(RunFactsStore(writer, FakeClock()).mark(OTHER, ulid(7), [RunLabel.HAS_USED_SECRET]))
    assert audit_home(writer.home).findings == ()
    writer.close()
