"""Rows of background processes: kept whole, ended once, and each owner's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from palyra.budget.store import BudgetStore
from palyra.errors import Reason
from palyra.launch import store
from palyra.model.outcome import Usage
from palyra.model.process import Lifetime, ProcessOwner, ProcessStatus
from palyra.state.writer import Writer
from tests.journaling import run_spec, ulid
from tests.unit.launch.orders import make_order, make_process

OWNER = ProcessOwner(ulid(1), "agent:demo")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """With the two runs that the tests speak of."""
    writer = Writer.open(tmp_path / "home")
    for run_id in (ulid(1), ulid(9)):
        writer.commit_now(partial(BudgetStore().ensure_run, run=run_spec(run_id)))
    yield writer
    writer.close()


def put(writer: Writer, *processes) -> None:
    for process in processes:
        writer.commit_now(partial(store.insert_process, process=process))


def test_a_process_is_read_back_as_it_was_kept(writer):
    started = make_process(make_order(lifetime=Lifetime.RUN_OWNED))
    put(writer, started)
    assert store.find_process(writer, started.process_id) == started
    ended = replace(
        started,
        status=ProcessStatus.EXITED,
        ended_unix_ms=9,
        signal=24,
        reason=Reason.CPU_LIMIT,
        usage=Usage(wall_us=1, cpu_us=None, max_rss_bytes=None, output_bytes=3),
        stdout_bytes=3,
        stderr_bytes=0,
        protected_created=(".env", "odd\nname"),
    )
    assert writer.commit_now(lambda tx: store.end_process(tx, ended))[0] is True
    assert store.find_process(writer, started.process_id) == ended


def test_of_two_that_end_a_process_one_wins(writer):
    started = make_process()
    put(writer, started)
    first = replace(started, status=ProcessStatus.EXITED, exit_code=0, ended_unix_ms=5)
    second = replace(started, status=ProcessStatus.LOST, ended_unix_ms=6)
    results = [writer.commit_now(partial(store.end_process, process=end))[0] for end in (first, second)]
    found = store.find_process(writer, started.process_id)
    assert (results, found.status, found.exit_code) == ([True, False], ProcessStatus.EXITED, 0)


def test_an_owner_gets_its_own_processes_newest_first_and_page_by_page(writer):
    mine = [make_process() for _ in range(3)]
    others = [
        make_process(make_order(owner=ProcessOwner(ulid(1), "agent:other"))),
        make_process(make_order(owner=ProcessOwner(ulid(9), "agent:demo"))),
    ]
    put(writer, *mine, *others)
    newest, middle, oldest = (process.process_id for process in reversed(mine))
    first = store.processes_of(writer, OWNER, count=2)
    assert [process.process_id for process in first] == [newest, middle]
    assert [p.process_id for p in store.processes_of(writer, OWNER, before=middle)] == [oldest]
    assert len(store.all_processes(writer)) == 5
    assert len(store.running_processes(writer)) == 5
