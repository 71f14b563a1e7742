"""A keeper's records on a real journal whose writer fails: what is tried again, what is not, and until when."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palyra.budget.store import BudgetStore
from palyra.errors import StateError
from palyra.launch import store
from palyra.model.process import BackgroundProcess, ProcessStatus
from palyra.state.writer import Writer
from palyra.wiring import lasting_records
from palyra.wiring.lasting_records import LastingRecords
from palyra.wiring.processes import ProcessRecords
from tests.journaling import audit_home, run_spec, ulid
from tests.stores import open_writer
from tests.unit.launch.orders import make_order, make_process


class Stage:
    """A home, and a disk that takes nothing while it is `full`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.full = False
        self.opened = 0
        first = open_writer(home)
        first.commit_now(partial(BudgetStore().ensure_run, run=run_spec(ulid(1))))
        self.records = LastingRecords(first, self.open)
        self.process: BackgroundProcess = make_process(make_order())

    def open(self) -> Writer:
        self.opened += 1
        if self.full:
            raise OSError("no room")
        return open_writer(self.home)

    def break_down(self) -> None:
        self.full = True
        self.records._writer._fail(StateError("The disk is full; nothing can be recorded."))

    async def end(self) -> None:
        ended = replace(
            self.process, status=ProcessStatus.EXITED, ended_unix_ms=self.process.started_unix_ms, exit_code=0
        )
        await self.records.ended(ended, {})

    def status(self) -> str:
        with_row = store.find_process(self.records._writer, self.process.process_id)
        return with_row.status.value if with_row is not None else "none"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(lasting_records, "AGAIN_AFTER_S", 0.02)
    made = Stage(tmp_path / "home")
    yield made
    made.records.close()


def test_an_end_is_recorded_once_the_disk_has_room_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        await stage.records.started(stage.process)
        stage.break_down()
        ending = asyncio.create_task(stage.end())
        while stage.opened < 3:
            await asyncio.sleep(0.005)
        assert not ending.done()
        stage.full = False
        await ending

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert (stage.status(), len(caplog.records)) == ("exited", 1), "told once"
    assert audit_home(stage.records._writer.home).findings == ()


def test_a_start_is_tried_once_more_and_fails_while_the_disk_is_full(stage: Stage) -> None:
    async def story() -> None:
        stage.break_down()
        for _ in range(2):
            with pytest.raises(StateError):
                await stage.records.started(stage.process)
        assert stage.opened == 2
        stage.full = False
        await stage.records.started(stage.process)

    asyncio.run(story())
    assert (stage.status(), stage.opened) == ("running", 3)


def test_a_start_whose_record_was_written_though_it_failed_is_recorded_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = ProcessRecords.started

    async def fail_afterwards(records: ProcessRecords, process: BackgroundProcess) -> None:
        await started(records, process)
        raise StateError("The journal could not be written: disk I/O error.")

    monkeypatch.setattr(ProcessRecords, "started", fail_afterwards)
    asyncio.run(stage.records.started(stage.process))
    assert (stage.status(), stage.opened) == ("running", 1)


@pytest.mark.parametrize("how", ["told to end", "out of patience"])
def test_a_keeper_that_has_to_end_is_not_kept_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        await stage.records.started(stage.process)
        stage.break_down()
        ending = asyncio.create_task(stage.end())
        await asyncio.sleep(0.05)
        if how == "told to end":
            stage.records.hurry()
        with pytest.raises(StateError):
            await asyncio.wait_for(ending, 30)
        stage.full = False

    if how == "out of patience":
        monkeypatch.setattr(lasting_records, "PATIENCE_S", 0.1)
    asyncio.run(story())


def test_of_two_that_failed_together_one_opens_the_state_again(stage: Stage) -> None:
    async def story() -> None:
        await stage.records.started(stage.process)
        stage.break_down()
        stage.full = False
        await asyncio.gather(stage.end(), stage.end())

    asyncio.run(story())
    assert (stage.status(), stage.opened) == ("exited", 1)
