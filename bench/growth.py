"""Growth: tier C calls, 1 to 64 at once, through one installation; and what a sandbox that waits costs in memory.

Not a race against peers: the same work, more of it at a time. Every call is end to end and durable. Latency should stay
flat until the cores are full; then calls wait for a core and the rate stays. Memory is what the kernel says the waiting
processes have to themselves (PSS), and what became unavailable on the whole machine.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import quantile
from bench.installation import Ground, check_outcome

PARALLEL = (1, 2, 4, 8, 16, 32, 64)
CALLS_EACH = 4
IDLE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    parallel: int
    calls: int
    p50_ms: float
    p95_ms: float
    calls_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    sandboxes: int
    pss_kib_each: float
    unavailable_kib_each: float


def measure_growth(ground: Ground) -> tuple[tuple[Step, ...], Idle]:
    return asyncio.run(_measure(ground))


async def _measure(ground: Ground) -> tuple[tuple[Step, ...], Idle]:
    from palyra import AsyncPalyra

    async with AsyncPalyra.open(home=str(ground.home)) as palyra:
        run = palyra.run(principal="user:bench", workspace=ground.workspace, tier="c", egress="strict")
        steps = [await _step(run, palyra.installation.executor.pool, parallel) for parallel in PARALLEL]
        return tuple(steps), await _idle(palyra, run)


async def _step(run: Any, pool: Any, parallel: int) -> Step:
    took: list[float] = []

    async def caller() -> None:
        for _ in range(CALLS_EACH):
            start = time.perf_counter()
            check_outcome(await run.call("palyra.process.run", {"command": "true"}))
            took.append((time.perf_counter() - start) * 1000)

    await caller()
    if pool is not None:
        await pool.settled()
    took.clear()
    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(parallel)))
    whole = time.perf_counter() - start
    return Step(
        parallel=parallel,
        calls=len(took),
        p50_ms=round(statistics.median(took), 2),
        p95_ms=round(quantile(took, 0.95), 2),
        calls_per_s=round(len(took) / whole, 1),
    )


async def _idle(palyra: Any, run: Any) -> Idle:
    """Sandboxes held by an executor's pool, not one more call than it takes to make them."""
    from palyra.engine.trip import CallRequest
    from palyra.launch.held import template_of
    from palyra.launch.pool import PoolSize
    from palyra.launch.process import ProcessExecutor

    request = CallRequest(tool="palyra.process.run", input={"command": "true"}, run=run.run)
    trip, _ = await palyra.installation.engine.assess(request)
    executor = ProcessExecutor(palyra.installation.host, warm=PoolSize(per_template=IDLE, total=IDLE))
    assert executor.pool is not None
    try:
        before = _available_kib()
        executor.pool.wish(template_of(trip.plan))
        await executor.pool.settled()
        after = _available_kib()
        held = [one for queue in executor.pool._ready.values() for _, one, _ in queue]
        pss = sum(_pss_kib(pid) for one in held for pid in {one.pid, one.init, one.program} if pid)
    finally:
        await executor.close()
    count = max(1, len(held))
    return Idle(
        sandboxes=len(held),
        pss_kib_each=round(pss / count, 1),
        unavailable_kib_each=round((before - after) / count, 1),
    )


def _pss_kib(pid: int) -> int:
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def _available_kib() -> int:
    return _field(Path("/proc/meminfo"), "MemAvailable:")


def _field(file: Path, name: str) -> int:
    lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
