"""Background processes on a real journal, with a keeper that is only told things: recovery, scope, one entry an end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palyra.budget.store import BudgetStore
from palyra.errors import Reason, Rejected
from palyra.journal.entry import parse_entry
from palyra.journal.merkle import leaf_hash
from palyra.journal.store import JournalRows, JournalStore
from palyra.launch import store
from palyra.launch.survivors import start_ticks
from palyra.model.process import BackgroundProcess, Lifetime, NotStarted, ProcessOwner, ProcessStatus
from palyra.model.record import Owner
from palyra.state.connection import snapshot
from palyra.state.writer import Writer
from palyra.testing import FakeClock, FakeOwners
from palyra.wiring.processes import KeptProcesses, ProcessRecords
from tests.journaling import audit_home, closing, opening, run_spec, ulid
from tests.promises import promise
from tests.stores import open_writer, tampering
from tests.unit.launch.orders import make_order, make_process

OWNER = ProcessOwner(ulid(1), "agent:demo")
ALIVE, DEAD = Owner("boot", 2, 2), Owner("boot", 3, 3)


class Keeping:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None

    async def stop(self, process_id: str, *, by: str) -> None:
        self.told.append(("stop", process_id, by))
        if self.failure is not None:
            raise self.failure

    async def end_run(self, owner: ProcessOwner, *, by: str) -> None:
        self.told.append(("end_run", owner, by))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = open_writer(tmp_path / "home")
    writer.commit_now(partial(BudgetStore().ensure_run, run=run_spec(ulid(1))))
    yield writer
    writer.close()


def open_kept(writer: Writer, keeping: Any = None) -> KeptProcesses:
    owners = FakeOwners(alive=frozenset({ALIVE}))
    logs = writer.home.root / "logs"
    return KeptProcesses(writer=writer, keeping=keeping or Keeping(), logs=logs, owners=owners, clock=FakeClock())


def put(writer: Writer, keeper: Owner, **order: Any) -> BackgroundProcess:
    process: BackgroundProcess = make_process(make_order(**order), keeper=keeper, pid=1 << 22, ticks=1)
    writer.commit_now(partial(store.insert_process, process=process))
    return process


def entries(writer: Writer) -> list[dict[str, Any]]:
    with snapshot(writer.home.database) as view:
        return [dict(parse_entry(entry.body).predicate) for entry in JournalRows(view).entries()]


def asked_for(writer: Writer, details: bytes = b'{"input":{"background":true}}') -> str:
    """The call of a background process, as an older version left it: with no entry of the process's start."""
    journal, run, call_id = JournalStore(writer, BudgetStore()), run_spec(ulid(1)), ulid()

    async def call() -> None:
        await journal.open_call(opening(call_id, run, details=details))
        await journal.close_call(closing(call_id, run))

    asyncio.run(call())
    return call_id


def test_a_process_whose_keeper_is_gone_is_lost_once_for_all_who_look(writer):
    process = put(writer, DEAD, call_id=asked_for(writer))

    async def look() -> list[ProcessStatus]:
        one, other = open_kept(writer), open_kept(writer)
        await asyncio.gather(one.recover(), other.recover(), one.recover())
        return [(await kept.status(OWNER, process.process_id)).status for kept in (one, other)]

    assert asyncio.run(look()) == [ProcessStatus.LOST] * 2
    (entry,) = entries(writer)[2:]
    assert (entry["act"], entry["actor"], entry["run_id"], entry["details"]["status"]) == (
        "process.ended", "palyra", ulid(1), "lost",
    )  # fmt: skip
    assert audit_home(writer.home).findings == ()


def test_a_process_whose_keeper_lives_is_left_alone(writer):
    process = put(writer, ALIVE)
    kept = open_kept(writer)
    assert asyncio.run(kept.recover()) == 0
    assert asyncio.run(kept.status(OWNER, process.process_id)).is_running
    assert entries(writer) == []


def test_looking_at_one_finds_out_that_its_keeper_is_gone(writer):
    process = put(writer, DEAD)
    assert asyncio.run(open_kept(writer).status(OWNER, process.process_id)).status is ProcessStatus.LOST


@pytest.mark.parametrize(
    "owner", [ProcessOwner(ulid(1), "agent:mallory"), ProcessOwner(ulid(2), "agent:demo")], ids=["principal", "run"]
)
def test_a_handle_of_others_does_not_exist(writer, owner):
    process, keeping = put(writer, ALIVE), Keeping()
    kept = open_kept(writer, keeping)
    output = kept.output(owner, process.process_id, offset_bytes=0, max_bytes=1, stream=None)
    for asked in (kept.status(owner, process.process_id), output, kept.stop(owner, process.process_id, by="x")):
        with pytest.raises(Rejected) as caught:
            asyncio.run(asked)
        assert caught.value.reason is Reason.BAD_ARGUMENTS
    assert asyncio.run(kept.list(owner, before=None, count=9)) == ()
    assert keeping.told == []


@pytest.mark.parametrize("handle", ["", "1", "../../../etc/passwd", "0" * 26 + "/", "\x00" * 26])
def test_what_is_no_handle_is_never_a_path_or_a_pid(writer, handle):
    with pytest.raises(Rejected):
        asyncio.run(open_kept(writer).status(OWNER, handle))


def test_a_stop_goes_to_the_keeper_and_never_for_one_that_has_ended(writer):
    keeping = Keeping()
    running, lost = put(writer, ALIVE), put(writer, DEAD)
    kept = open_kept(writer, keeping)
    assert asyncio.run(kept.stop(OWNER, lost.process_id, by="agent:demo")).status is ProcessStatus.LOST
    with pytest.raises(Rejected) as caught:  # this keeper does nothing, and that is not called success
        asyncio.run(kept.stop(OWNER, running.process_id, by="agent:demo"))
    assert (caught.value.reason, keeping.told) == (Reason.BUSY, [("stop", running.process_id, "agent:demo")])


def test_a_keeper_that_dies_during_a_stop_is_no_error_of_the_callers(writer):
    keeping = Keeping()
    process = put(writer, ALIVE)
    owners = FakeOwners(alive=frozenset({ALIVE}))
    kept = KeptProcesses(writer=writer, keeping=keeping, logs=Path("/"), owners=owners, clock=FakeClock())

    async def die(process_id: str, *, by: str) -> None:
        owners.alive = frozenset()
        raise NotStarted("The keeper ended before it answered.")

    keeping.stop = die  # type: ignore[method-assign]
    assert asyncio.run(kept.stop(OWNER, process.process_id, by="x")).status is ProcessStatus.LOST


def test_the_end_of_a_run_is_told_only_where_something_is_to_end(writer):
    keeping = Keeping()
    kept = open_kept(writer, keeping)
    put(writer, ALIVE, lifetime=Lifetime.DETACHED)
    asyncio.run(kept.end_run(OWNER))
    assert keeping.told == []
    put(writer, ALIVE, lifetime=Lifetime.RUN_OWNED)
    asyncio.run(kept.end_run(OWNER))
    assert keeping.told == [("end_run", OWNER, "run")]


# ── what somebody does to the rows ──


def started(writer: Writer, keeper: Owner, **order: Any) -> BackgroundProcess:
    """As a keeper records it, with its entry."""
    process: BackgroundProcess = make_process(make_order(**order), keeper=keeper, pid=1 << 22, ticks=1)
    asyncio.run(ProcessRecords(writer).started(process))
    return process


def findings(writer: Writer) -> list[str]:
    return [one.detail for one in audit_home(writer.home).findings]


ROW_EDITS = {
    "given to another": "UPDATE processes SET principal = 'agent:mallory' WHERE status = 'running'",
    "moved to another run": "UPDATE processes SET run_id = 'other' WHERE status = 'running'",
    "prolonged": "UPDATE processes SET expires_unix_ms = 1 << 50",
    "made to outlive its run": "UPDATE processes SET lifetime = 'run_owned'",
    "another's pid": "UPDATE processes SET pid = 1, start_ticks = 0",
    "another's groups": "UPDATE processes SET cgroups = '/sys/fs/cgroup'",
    "another keeper": "UPDATE processes SET keeper_pid = 9",
    "ended by nobody": "UPDATE processes SET status = 'exited', ended_unix_ms = 5 WHERE status = 'running'",
    "running again": "UPDATE processes SET status = 'running', ended_unix_ms = NULL WHERE status = 'lost'",
    "another end": "UPDATE processes SET exit_code = 0 WHERE status = 'lost'",
    "other figures of use": "UPDATE processes SET cpu_us = 7, wall_us = 7 WHERE status = 'lost'",
    "gone": "DELETE FROM processes WHERE status = 'running'",
    "another's end gone": "DELETE FROM processes WHERE status = 'lost'",
}


@promise("journal.process-rows")
@pytest.mark.parametrize("edit", ROW_EDITS)
def test_a_process_that_somebody_changed_in_its_row_is_found(writer, edit):
    """Whose a process is, its row says: who owns it reads its output and stops it."""
    started(writer, ALIVE)
    started(writer, DEAD)
    assert asyncio.run(open_kept(writer).recover()) == 1
    assert [entry["act"] for entry in entries(writer)] == ["process.started", "process.started", "process.ended"]
    assert findings(writer) == []
    with tampering(writer.home) as other:
        other.execute("PRAGMA foreign_keys = OFF")
        other.execute(ROW_EDITS[edit])
    assert [detail.startswith("The row of process") for detail in findings(writer)] in ([True], [True, True])


def test_a_start_of_a_call_that_is_no_text_is_a_finding_and_ends_no_audit(writer):
    started(writer, ALIVE, call_id=ulid(7))
    with tampering(writer.home) as other:
        body = other.execute("SELECT body FROM entries").fetchone()[0].replace(f'"{ulid(7)}"'.encode(), b"[]")
        other.execute("UPDATE entries SET body = ?, leaf_hash = ?", (body, leaf_hash(body)))
    assert {one.code for one in audit_home(writer.home).findings} == {"TREE", "KEPT"}


SAYS_NOBODY = "has no entry that says it was started."


def test_a_process_that_nobody_started_is_found_by_its_row(writer):
    """At the next start, what it names would be killed in its place."""
    started(writer, ALIVE)
    put(writer, ALIVE)
    assert [detail.split(" ", 5)[-1] for detail in findings(writer)] == [SAYS_NOBODY]


@promise("journal.process-rows")
@pytest.mark.parametrize("details", [None, b'{"input":{"command":"ls"}}'], ids=["of no call", "of another call"])
@pytest.mark.parametrize("keeper", [ALIVE, DEAD], ids=["running", "ended by Palyra itself"])
def test_a_process_that_nobody_started_is_found_where_none_ever_was(writer, keeper, details):
    """Older versions told of ends alone, and Palyra ends what has no keeper: neither is an excuse for a forged row."""
    asked_for(writer)
    put(writer, keeper, call_id=ulid() if details is None else asked_for(writer, details))
    asyncio.run(open_kept(writer).recover())
    assert [detail.split(" ", 5)[-1] for detail in findings(writer)] == [SAYS_NOBODY]


def test_a_second_process_of_a_call_that_started_one_is_found(writer):
    call_id = asked_for(writer)
    started(writer, ALIVE, call_id=call_id)
    put(writer, DEAD, call_id=call_id)
    asyncio.run(open_kept(writer).recover())
    assert [detail.split(" ", 5)[-1] for detail in findings(writer)] == [SAYS_NOBODY]


def test_processes_that_an_older_version_started_go_on_verifying(writer):
    """It told of ends alone."""
    call_id = asked_for(writer)
    put(writer, ALIVE, call_id=call_id)
    put(writer, DEAD, call_id=call_id)
    asyncio.run(open_kept(writer).recover())
    assert findings(writer) == []
    started(writer, ALIVE)
    assert findings(writer) == []
    put(writer, DEAD, call_id=asked_for(writer))
    asyncio.run(open_kept(writer).recover())
    assert [detail.split(" ", 5)[-1] for detail in findings(writer)] == [SAYS_NOBODY]


# ── what somebody has Palyra kill ──


@contextmanager
def bystander() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Somebody else's process, and when it began."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        try:
            yield child, start_ticks(child.pid) or 0
        finally:
            child.kill()


def is_running(writer: Writer, process: BackgroundProcess) -> bool:
    found = store.find_process(writer, process.process_id)
    return found is not None and found.is_running


@promise("calls.recovery-kills")
def test_a_process_that_somebody_put_in_a_row_is_not_killed_by_recovery(writer):
    """A start kills what is left of a lost process: who can write the database must not choose which."""
    process = started(writer, DEAD)
    with bystander() as (child, ticks):
        with tampering(writer.home) as other:
            other.execute("UPDATE processes SET pid = ?, start_ticks = ?", (child.pid, ticks))
        assert asyncio.run(open_kept(writer).recover()) == 0
        assert child.poll() is None
    assert is_running(writer, process)  # no entry speaks of an end that nobody saw
    assert [entry["act"] for entry in entries(writer)] == ["process.started"]
    assert [detail.split(" ", 5)[-1] for detail in findings(writer)] == ["is not what its entries say."]


def test_a_process_in_a_row_that_nobody_started_is_not_killed_by_recovery(writer):
    with bystander() as (child, ticks):
        process: BackgroundProcess = make_process(make_order(), keeper=DEAD, pid=child.pid, ticks=ticks)
        writer.commit_now(partial(store.insert_process, process=process))
        assert asyncio.run(open_kept(writer).recover()) == 1
        assert child.poll() is None
    assert not is_running(writer, process)


@promise("calls.recovery-kills")
def test_a_start_that_somebody_wrote_into_the_journal_kills_nothing(writer):
    """The entry and its leaf hash can be edited together; the signed tree cannot."""
    started(writer, DEAD)
    with bystander() as (child, ticks):
        with tampering(writer.home) as other:
            other.execute("UPDATE processes SET pid = ?, start_ticks = ?", (child.pid, ticks))
            body: bytes = other.execute("SELECT body FROM entries").fetchone()[0]
            body = body.replace(b'"pid":%d' % (1 << 22), b'"pid":%d' % child.pid)
            body = body.replace(b'"start_ticks":1,', b'"start_ticks":%d,' % ticks)
            other.execute("UPDATE entries SET body = ?, leaf_hash = ?", (body, leaf_hash(body)))
        assert asyncio.run(open_kept(writer).recover()) == 0
        assert child.poll() is None


def test_a_running_process_is_not_ended_by_a_row_that_names_another_keeper(writer):
    process = started(writer, ALIVE)
    with tampering(writer.home) as other:
        other.execute("UPDATE processes SET keeper_boot_id = 'an earlier boot'")
    assert asyncio.run(open_kept(writer).recover()) == 0
    assert is_running(writer, process)


def test_what_is_left_of_a_lost_process_is_killed(writer):
    with bystander() as (child, ticks):
        process: BackgroundProcess = make_process(make_order(), keeper=DEAD, pid=child.pid, ticks=ticks)
        asyncio.run(ProcessRecords(writer).started(process))
        assert asyncio.run(open_kept(writer).recover()) == 1
        assert child.wait(30) == -9
    assert findings(writer) == []


def test_an_end_that_contradicts_its_start_is_found(writer):
    """Palyra ended the row as somebody had changed it, and the entry of the end then agreed with that."""
    process = started(writer, ALIVE)
    with tampering(writer.home) as other:
        other.execute("UPDATE processes SET principal = 'agent:mallory'")
    changed = store.find_process(writer, process.process_id)
    assert changed is not None
    ended = replace(changed, status=ProcessStatus.LOST, ended_unix_ms=5)
    asyncio.run(ProcessRecords(writer).ended(ended, {}))
    assert [detail.split(" ", 5)[-1] for detail in findings(writer)] == ["is not what its entries say."]
