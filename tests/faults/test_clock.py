"""A clock that jumps: ids stay in order, deadlines hold, the journal verifies, what ran out stays closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra import AsyncPalyra
from palyra.wiring import clock as clocks
from tests.journaling import audit_home

DAY_MS = 24 * 3600 * 1000
JUMPS = (0, -400 * DAY_MS, 20 * 365 * DAY_MS, -1, 3600 * 1000, -20 * 365 * DAY_MS)


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the system's clock, as far as Palyra sees it, off by so many milliseconds. Monotonic time goes on."""
    real, off = clocks.SystemClock.now_unix_ms, [0]
    monkeypatch.setattr(clocks.SystemClock, "now_unix_ms", lambda self: real(self) + off[0])
    return lambda milliseconds: off.__setitem__(0, milliseconds)


def test_calls_across_jumps_have_ids_in_order_and_a_sound_journal(
    home: Path, workspace: Path, jump: Callable[[int], None]
) -> None:
    async def story() -> None:
        ids = []
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=workspace)
            for off in JUMPS:
                jump(off)
                outcome = await run.call("palyra.process.run", {"command": "true"})
                assert outcome.success, outcome
                ids.append(outcome.call_id)
        assert ids == sorted(set(ids))
        async with AsyncPalyra.open(str(home)) as palyra:
            assert audit_home(palyra.installation.writer.home, alive=True, every=True).findings == ()

    asyncio.run(story())


def test_a_jump_during_a_call_neither_ends_it_nor_keeps_it_alive(
    home: Path, workspace: Path, jump: Callable[[int], None]
) -> None:
    async def story() -> list[str]:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=workspace)
            ended = []
            for off in (20 * 365 * DAY_MS, -20 * 365 * DAY_MS):
                jump(0)
                asyncio.get_running_loop().call_later(0.1, jump, off)
                short = run.call("palyra.process.run", {"command": "sleep", "args": ["0.4"], "timeout_ms": 30_000})
                ended.append((await short).status.value)
                asyncio.get_running_loop().call_later(0.1, jump, -off)
                long = run.call("palyra.process.run", {"command": "sleep", "args": ["60"], "timeout_ms": 700})
                ended.append((await long).status.value)
            return ended

    assert asyncio.run(story()) == ["completed", "timeout"] * 2


def test_a_question_that_ran_out_stays_closed_when_the_clock_goes_back(
    home: Path, workspace: Path, jump: Callable[[int], None]
) -> None:
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text('[tool_call.process_runner]\negress_enforcement_mode = "none"\n')

    async def story() -> None:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=workspace)
            asked = await run.call("palyra.process.run", {"command": "ls"})
            assert asked.approval is not None
            jump(3 * 3600 * 1000)
            await palyra.installation.approvals.expire_overdue()
            jump(0)
            state = await palyra.installation.approvals.look(str(asked.approval["approval_id"]))
            assert state.state.value == "expired"

    asyncio.run(story())
