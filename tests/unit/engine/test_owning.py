"""Runs that own background processes are remembered for as long as one of them can live."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palyra.engine.owning import GRACE_US, OwningRuns
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.model.process import ProcessOwner, ProcessStatus
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import fake_ports, fake_run

LIFE_MS = 600_000
PAST_US = LIFE_MS * 1000 + GRACE_US


def owner(number: int) -> ProcessOwner:
    return ProcessOwner(f"run-{number}", "agent:demo")


def test_runs_that_nobody_ends_are_kept_no_longer_than_their_processes_can_live():
    owning = OwningRuns()
    for number in range(10_000):
        owning.note(owner(number), now_us=number * 1_000_000, lifetime_ms=LIFE_MS)
    assert len(owning.all()) == PAST_US // 1_000_000
    assert owning.all()[-1] == owner(9_999)


def test_a_run_that_starts_another_process_is_kept_for_that_one():
    owning = OwningRuns()
    owning.note(owner(1), now_us=0, lifetime_ms=LIFE_MS)
    owning.note(owner(1), now_us=PAST_US - 1, lifetime_ms=LIFE_MS)
    owning.note(owner(2), now_us=PAST_US + 1, lifetime_ms=LIFE_MS)
    assert set(owning.all()) == {owner(1), owner(2)}


def test_a_short_process_does_not_shorten_what_a_longer_one_of_its_run_has():
    owning = OwningRuns()
    owning.note(owner(1), now_us=0, lifetime_ms=LIFE_MS)
    owning.note(owner(1), now_us=1, lifetime_ms=1)
    owning.note(owner(2), now_us=PAST_US - 1, lifetime_ms=1)
    assert owner(1) in owning.all()


def test_a_run_that_was_ended_is_forgotten():
    owning = OwningRuns()
    owning.note(owner(1), now_us=0, lifetime_ms=LIFE_MS)
    owning.forget(owner(1))
    owning.forget(owner(1))
    assert owning.all() == ()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, PAST_US), st.integers(1, LIFE_MS)), max_size=30))
def test_whatever_can_still_be_alive_is_kept(starts):
    owning, now_us = OwningRuns(), 0
    until: dict[ProcessOwner, int] = {}
    for number, later_us, lifetime_ms in starts:
        now_us += later_us
        owning.note(owner(number), now_us=now_us, lifetime_ms=lifetime_ms)
        until[owner(number)] = max(until.get(owner(number), 0), now_us + lifetime_ms * 1000)
        assert {name for name, end_us in until.items() if end_us > now_us} <= set(owning.all())


def test_an_engine_that_closes_ends_the_processes_of_runs_that_nobody_ended():
    ports = fake_ports()
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    sleep = {"command": "sleep", "args": ["9"], "background": True}

    async def start_and_close() -> None:
        for run in (fake_run(), replace(fake_run(), run_id="01J00000000000000000000099")):
            await engine.call(CallRequest(tool="palyra.process.run", input=sleep, run=run))
        await engine.close()

    asyncio.run(start_and_close())
    assert [p.status for p in ports.background.processes.values()] == [ProcessStatus.STOPPED] * 2
