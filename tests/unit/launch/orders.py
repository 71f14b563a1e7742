"""Start orders and processes that differ only where a test wants them to."""

from __future__ import annotations

from typing import Any

from palyra.model.plan import plan_digest
from palyra.model.process import BackgroundProcess, Lifetime, ProcessOwner, StartOrder, started_process
from palyra.model.record import Owner
from palyra.sandbox.planner import plan_job
from tests.journaling import ulid
from tests.unit.sandbox.jobs import make_host, make_job

PLAN = plan_job(make_job(), make_host())
KEEPER = Owner("boot", 42, 7)


def make_order(**changes: Any) -> StartOrder:
    facts: dict[str, Any] = {
        "process_id": ulid(),
        "owner": ProcessOwner(ulid(1), "agent:demo"),
        "call_id": ulid(2),
        "plan": PLAN,
        "plan_sha256": plan_digest(PLAN),
        "lifetime": Lifetime.DETACHED,
        "expires_unix_ms": 2_000,
        "holder": None,
        "max_running": 3,
    }
    return StartOrder(**(facts | changes))


def make_process(order: StartOrder | None = None, *, keeper: Owner = KEEPER, pid: int = 0, ticks: int = 5) -> Any:
    process: BackgroundProcess = started_process(
        order or make_order(), keeper=keeper, pid=pid, start_ticks=ticks, cgroups=("/a", "/b"), at_unix_ms=1_000
    )
    return process
