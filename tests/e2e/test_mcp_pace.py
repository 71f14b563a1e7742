"""How often an MCP session may call: no number of calls ends it, a minute and a day have a bound."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from palyra.config.load import Home
from palyra.engine.trip import CallRequest
from palyra.errors import Reason
from palyra.mcp.callers import begin_run
from palyra.model.outcome import Outcome
from palyra.wiring.embedded import open_installation


def calls(
    home: Path, workspace: Path, count: int, *, settings: str = "", tool: str = "palyra.echo", given: Any = None
) -> list[Outcome]:
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text(f"[tool_call]\n{settings}\n")

    async def make() -> list[Outcome]:
        installation = await open_installation(Home(home))
        try:
            run = begin_run(installation, principal="agent:mcp", workspace=str(workspace), channel="stdio")
            request = CallRequest(tool=tool, input=given or {}, run=run)
            return [await installation.engine.call(request) for _ in range(count)]
        finally:
            await installation.close()

    return asyncio.run(make())


def test_the_201st_call_of_a_session_runs(home, workspace):
    assert all(outcome.success for outcome in calls(home, workspace, 205))


@pytest.mark.parametrize("key", ["max_calls_per_minute", "max_calls_per_day"])
def test_too_many_calls_in_a_minute_or_a_day_are_refused_and_the_key_is_named(home, workspace, key):
    *made, last = calls(home, workspace, 4, settings=f"{key} = 3")
    assert [outcome.reason for outcome in made] == [None, None, None]
    assert last.reason is Reason.BUDGET_SPENT
    agents, operators = last.hint.split("An operator can ")
    assert agents
    assert key in operators


@pytest.mark.parametrize("key", ["max_calls_per_minute", "max_calls_per_day"])
def test_a_session_cannot_try_for_ever_what_is_refused(home, workspace, key):
    outcomes = calls(home, workspace, 5, settings=f"{key} = 3", tool="palyra.process.run", given={"command": "bash"})
    reasons = [outcome.reason for outcome in outcomes]
    assert reasons == [Reason.INTERPRETER_DENIED] * 3 + [Reason.BUDGET_SPENT] * 2


def test_malformed_calls_of_a_session_have_an_end(home, workspace):
    outcomes = calls(home, workspace, 3, settings="max_attempts_per_run = 2", tool="no.such.tool")
    assert [outcome.reason for outcome in outcomes] == [Reason.UNKNOWN_TOOL] * 2 + [Reason.BUDGET_SPENT]


def test_an_operator_who_says_how_many_calls_a_run_has_is_obeyed(home, workspace):
    settings = "max_calls_per_run = 2\nmax_calls_per_minute = 1"
    *made, last = calls(home, workspace, 3, settings=settings)
    assert [outcome.reason for outcome in made] == [None, None]
    assert last.message == "The run has used 2 of its 2 calls."


def test_a_limit_of_0_is_none(home, workspace):
    settings = "max_calls_per_minute = 0\nmax_calls_per_day = 0"
    assert all(outcome.success for outcome in calls(home, workspace, 8, settings=settings))
