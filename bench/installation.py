"""Palyra's side of a row: a throwaway home and workspace, and one run through the Python API.

The whole pipeline is inside the clock: parse, schema, look, guard, Cedar, budget, plan, a durable intent, the sandbox,
capture, redaction, signature, a durable result. Nothing is switched off; only the call budget of the run is raised.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Contender, timed

CONFIG = """\
[tool_call]
max_calls_per_run = 1000000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where ours runs."""

    home: Path
    workspace: Path


@contextmanager
def open_ground() -> Iterator[Ground]:
    """A home on a real disk where there is one: on tmpfs a durable write would be free and flatter us."""
    disk = "/var/tmp" if Path("/var/tmp").is_dir() else None
    home = Path(tempfile.mkdtemp(prefix="palyra-bench-home-", dir=disk))
    workspace = Path(tempfile.mkdtemp(prefix="palyra-bench-workspace-"))
    workspace.chmod(0o755)  # a root engine runs children under another uid
    (home / "palyra.toml").write_text(CONFIG, encoding="utf-8")
    try:
        yield Ground(home=home, workspace=workspace)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def open_ours(ground: Ground, name: str, *, tier: str, egress: str) -> Iterator[Contender]:
    """`palyra.process.run` of `true` in one tier, called over and over on one open installation and one loop.

    Outside of the clock, after each call, the pool refills: a peer's turn must not pay for ours. A call that ran in
    another tier than the row names is no measurement: a run by itself may only ask for a stricter one."""
    from palyra import AsyncPalyra
    from palyra.errors import PalyraError
    from palyra.model.call import OperatorGrant, TierChoice
    from palyra.model.net import EgressMode

    with asyncio.Runner() as runner:
        try:
            palyra = runner.run(AsyncPalyra.open(home=str(ground.home)).start())
        except PalyraError as error:
            yield Contender(name=name, run=None, why_missing=str(error))
            return
        try:
            grant = OperatorGrant(tier=TierChoice(tier), egress=EgressMode(egress), root_tier_b=True)
            run = palyra.run(principal="user:bench", workspace=ground.workspace, grant=grant)
            pool = palyra.installation.executor.pool

            def check(outcome: Any) -> None:
                check_outcome(outcome)
                check_tier(outcome, tier)
                if pool is not None:
                    runner.run(pool.settled())

            first = runner.run(run.call("palyra.process.run", {"command": "true"}))
            if first.reason is not None:
                yield Contender(name=name, run=None, why_missing=f"{first.reason}: {first.message}")
                return
            check(first)
            until_done = runner.get_loop().run_until_complete  # Runner.run sets a signal handler each time
            call = timed(lambda: until_done(run.call("palyra.process.run", {"command": "true"})), check)
            yield Contender(name=name, run=call)
        finally:
            runner.run(palyra.close())


@contextmanager
def open_least(ground: Ground, name: str) -> Iterator[Contender]:
    """Two appends to a journal and the launch in a warm sandbox between them: what our own parts take that no call can
    do without. Nothing is decided, budgeted, kept or attested. Its home is another: whoever shares one reads again what
    the other wrote."""
    from bench.journal_ground import ACT
    from palyra import AsyncPalyra
    from palyra.model.plan import ProcessPlan

    with asyncio.Runner() as runner:
        palyra = runner.run(AsyncPalyra.open(home=str(ground.home / "least")).start())
        try:
            installation = palyra.installation
            plan, why = runner.run(plan_of_true(palyra, ground))
            executor, journal, pool = installation.executor, installation.journal, installation.executor.pool
            if not isinstance(plan, ProcessPlan) or pool is None:
                yield Contender(name=name, run=None, why_missing=why)
                return

            async def least() -> Any:
                await journal.record_act(ACT, at_unix_ms=1)
                execution = await executor.run(plan, Nothing())
                await journal.record_act(ACT, at_unix_ms=1)
                return execution

            def check(execution: Any) -> None:
                check_execution(execution)
                runner.run(pool.settled())

            until_done = runner.get_loop().run_until_complete
            yield Contender(name=name, run=timed(lambda: until_done(least()), check))
        finally:
            runner.run(palyra.close())


class Nothing:
    """For a program that writes nothing."""

    def feed(self, stream: object, chunk: bytes) -> None:
        raise RuntimeError(f"`true` wrote {chunk!r}")

    def reached(self, connections: object) -> None: ...


async def plan_of_true(palyra: Any, ground: Ground) -> tuple[object, str]:
    """What a call of tier C would run, and why not."""
    from palyra.engine.trip import CallRequest

    run = palyra.run(principal="user:bench", workspace=ground.workspace, tier="c", egress="strict").run
    request = CallRequest(tool="palyra.process.run", input={"command": "true"}, run=run)
    trip, refusal = await palyra.installation.engine.assess(request)
    return (trip.plan, "") if refusal is None else (None, str(refusal))


@contextmanager
def open_cold(ground: Ground, name: str) -> Iterator[Contender]:
    """The launch alone: the plan of such a call, run by an executor without a pool. No policy, no journal."""
    from palyra import AsyncPalyra
    from palyra.launch.process import ProcessExecutor
    from palyra.model.plan import ProcessPlan

    with asyncio.Runner() as runner:
        palyra = runner.run(AsyncPalyra.open(home=str(ground.home)).start())
        executor = ProcessExecutor(palyra.installation.host)
        try:
            plan, why = runner.run(plan_of_true(palyra, ground))
            until_done = runner.get_loop().run_until_complete
            if not isinstance(plan, ProcessPlan):
                yield Contender(name=name, run=None, why_missing=why)
                return
            yield Contender(name=name, run=timed(lambda: until_done(executor.run(plan, Nothing())), check_execution))
        finally:
            runner.run(executor.close())
            runner.run(palyra.close())


def check_execution(execution: Any) -> None:
    if execution.exit_code != 0:
        raise RuntimeError(f"a measured launch failed: {execution.reason}: {execution.message}")


def check_outcome(outcome: Any) -> None:
    if not outcome.success:
        raise RuntimeError(f"a measured call failed: {outcome.reason}: {outcome.message}")


def check_tier(outcome: Any, tier: str) -> None:
    ran_by = outcome.attestation["executor"]
    if not ran_by.startswith(f"sandbox_tier_{tier}"):
        raise RuntimeError(f"a measured call of tier {tier.upper()} was run by {ran_by}")
