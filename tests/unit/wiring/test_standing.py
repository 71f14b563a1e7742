"""What is read at once is what would have been read one by one, of the same moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.api import AsyncPalyra
from palyra.budget.store import BudgetStore
from palyra.engine.ports import Ports, Standing
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.budget import Allowance
from palyra.model.process import ProcessOwner
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.testing import FakeClock
from palyra.wiring.policy_acts import use_policies
from palyra.wiring.standing import StandingStore
from tests.journaling import ulid
from tests.stores import open_writer

FORBID = """@id("local.no-echo")
@reason("No echo here.")
forbid (principal, action == Action::"tool::execute", resource == Tool::"palyra.echo");
"""


async def one_by_one(ports: Ports, owner: ProcessOwner) -> tuple[Any, ...]:
    policies: Any = ports.policies
    return await ports.journal.budget(owner.run_id), ports.run_facts.read(owner), policies._versions.pointer()


async def check(ports: Ports, owner: ProcessOwner) -> None:
    assert ports.standings is not None
    read = ports.standings.read(owner)
    assert read.policy_is_read
    assert (read.budget, read.facts, read.policy) == await one_by_one(ports, owner)
    assert ports.policies.at(read.policy) is ports.policies.current()


@pytest.mark.parametrize("most", [Allowance(), Allowance(wall_us=10**9), Allowance(output_bytes=10**6, cpu_us=10**9)])
def test_what_is_read_at_once_is_what_each_would_have_said(tmp_path: Path, workspace: Path, most: Allowance):
    async def work() -> None:
        async with AsyncPalyra(str(tmp_path / "home")) as palyra:
            ports = palyra.installation.ports
            run = palyra.run("agent:demo", workspace, budget=most)
            owners = [ProcessOwner(run.run_id, "agent:demo"), ProcessOwner(run.run_id, "agent:other")]
            owners.append(ProcessOwner(ulid(9), "agent:demo"))
            for step in range(4):
                for owner in owners:
                    await check(ports, owner)
                if step == 2:
                    await ports.run_facts.mark(owners[0], ulid(8), [RunLabel.HAS_USED_SECRET])
                await run.call("palyra.echo", {"n": step})
                await run.call("palyra.process.run", {"command": "bash"})

    asyncio.run(work())


def test_a_policy_that_came_into_use_decides_the_very_next_call(tmp_path: Path, workspace: Path):
    """Also where the same call was allowed a moment ago, and whoever installed it."""

    async def work() -> list[Reason | None]:
        async with (
            AsyncPalyra(str(tmp_path / "home")) as palyra,
            AsyncPalyra(str(tmp_path / "home")) as other,
        ):
            run, reasons = palyra.run("agent:demo", workspace), []
            for step in range(4):
                if step == 2:
                    await use_policies(other.installation, {"local.cedar": FORBID}, by="user:demo")
                reasons.append((await run.call("palyra.echo", {"n": 1})).reason)
                await check(palyra.installation.ports, ProcessOwner(run.run_id, "agent:demo"))
            return reasons

    assert asyncio.run(work()) == [None, None, Reason.POLICY_DENIED, Reason.POLICY_DENIED]


def test_an_engine_that_reads_one_by_one_says_the_same(tmp_path: Path, workspace: Path):
    async def work() -> None:
        async with AsyncPalyra(str(tmp_path / "home")) as palyra:
            ports, registry = palyra.installation.ports, palyra.installation.engine.registry
            apart = Engine(replace(ports, standings=None), registry)
            run = palyra.run("agent:demo", workspace)
            requests = [await run.call("palyra.echo", {"n": 1}) for _ in range(2)]
            assert all(one.success for one in requests)
            request = CallRequest(tool="palyra.echo", input={"n": 1}, run=run.run)
            (one, _), (other, _) = await palyra.installation.engine.assess(request), await apart.assess(request)
            assert one.cedar == other.cedar
            assert one.run_facts == other.run_facts
            assert one.policy_sha256 == other.policy_sha256

    asyncio.run(work())


def test_of_a_run_that_ends_with_its_call_the_policies_are_all_there_is_to_read_until_it_is_known(
    tmp_path: Path, workspace: Path
):
    async def work() -> None:
        async with AsyncPalyra(str(tmp_path / "home")) as palyra:
            standings, run = palyra.installation.ports.standings, palyra.run("agent:demo", workspace)
            assert standings is not None
            owner = ProcessOwner(run.run_id, "agent:demo")
            whole = standings.read(owner)
            assert standings.read(owner, ends_with_call=True) == replace(whole, facts=None)
            await run.call("palyra.echo", {"n": 1})
            assert standings.read(owner, ends_with_call=True) == standings.read(owner)
            assert standings.read(owner).budget is not None

    asyncio.run(work())


def test_a_policy_that_came_into_use_is_seen_by_the_very_next_new_run(tmp_path: Path):
    """Which policies are in use is remembered for runs of one call, until anybody commits."""

    async def work() -> None:
        home = str(tmp_path / "home")
        async with AsyncPalyra(home) as palyra, AsyncPalyra(home) as other:
            standings = palyra.installation.ports.standings
            assert standings is not None
            for by in (other, palyra):
                owner = ProcessOwner(ulid(9), "agent:demo")
                before = standings.read(owner, is_new=True)
                assert before == standings.read(owner, ends_with_call=True) == standings.read(owner, is_new=True)
                await use_policies(by.installation, {"local.cedar": FORBID + f"// {id(by)}"}, by="user:demo")
                after = standings.read(owner, is_new=True)
                assert after.policy != before.policy
                assert after == standings.read(owner, ends_with_call=True)

    asyncio.run(work())


def test_a_run_that_nobody_knows_stands_at_the_beginning(tmp_path: Path):
    writer = open_writer(tmp_path / "home")
    owner = ProcessOwner(ulid(5), "agent:demo")
    assert StandingStore(writer, BudgetStore(), FakeClock()).read(owner) == Standing(
        budget=None, facts=RunFacts(), policy_is_read=True, policy=None, policy_number=0
    )
    writer.close()
