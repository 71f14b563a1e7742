"""Many callers at once, each with its next kind of call as soon as the last one is answered.

Every kind names what must have become of its call, so that a soak in which nothing really ran cannot pass. Not here:
what the calls may leave behind (traces), who looks for it (`__main__`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from palyra import AsyncPalyra
from palyra.api import AsyncRun, Limits, grant
from palyra.model.outcome import Outcome, Status

PROCESS = "palyra.process.run"
SURVIVOR = "(setsid sh -c 'sleep 300 & sleep 300' </dev/null >/dev/null 2>&1 &); echo started"
SHORT = Limits(wall_ms=200)
SMALL = Limits(wall_ms=60_000, output_bytes=4096)


@dataclass
class Load:
    palyra: AsyncPalyra
    folder: Path
    tiers: tuple[str, ...]
    ended: Counter[str] = field(default_factory=Counter)
    """Calls by kind."""
    odd: list[str] = field(default_factory=list)
    pool: dict[str, int] = field(default_factory=dict)
    _number: itertools.count[int] = field(default_factory=itertools.count)

    async def run(self, *, callers: int, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for first in range(callers):
                group.create_task(self._call_until(until, first))

    async def _call_until(self, until: float, first: int) -> None:
        for number in itertools.count(first):
            if asyncio.get_running_loop().time() >= until:
                return
            kind, tier = KINDS[number % len(KINDS)], self.tiers[number // len(KINDS) % len(self.tiers)]
            told = await kind(self, tier)
            self.ended[f"{kind.__name__} in tier {tier}"] += 1
            if told:
                self.odd.append(f"{kind.__name__} in tier {tier}: {told}"[:400])

    def session(self, tier: str, **options: object) -> AsyncRun:
        workspace = options.pop("workspace", self.folder / "workspace")
        return self.palyra.run(
            "agent:soak",
            workspace,  # type: ignore[arg-type]
            grant=grant(tier=tier, interpreters=True, executables=("sh",), egress="strict"),
            **options,  # type: ignore[arg-type]
        )


async def warm(load: Load, tier: str) -> str:
    outcome = await load.session(tier).call(PROCESS, {"command": "echo", "args": ["here"]})
    return expect(outcome, Status.COMPLETED, "here\n")


async def cold(load: Load, tier: str) -> str:
    """No sandbox can have been started ahead for a workspace that nobody has seen."""
    workspace = load.folder / f"new-{next(load._number)}"
    workspace.mkdir()
    outcome = await load.session(tier, workspace=workspace).call(PROCESS, {"command": "touch", "args": ["made"]})
    whole = expect(outcome, Status.COMPLETED, "") or ("" if (workspace / "made").exists() else "no file was made")
    (workspace / "made").unlink(missing_ok=True)
    workspace.rmdir()
    return whole


async def too_long(load: Load, tier: str) -> str:
    outcome = await load.session(tier, limits=SHORT).call(PROCESS, {"command": "sleep", "args": ["300"]})
    return expect(outcome, Status.TIMEOUT)


async def too_much(load: Load, tier: str) -> str:
    return expect(await load.session(tier, limits=SMALL).call(PROCESS, {"command": "yes"}), Status.QUOTA_EXCEEDED)


async def survivor(load: Load, tier: str) -> str:
    """Double forks into sessions of their own, which a killed process group would miss."""
    outcome = await load.session(tier).call(PROCESS, {"command": "sh", "args": ["-c", SURVIVOR]})
    return expect(outcome, Status.COMPLETED, "started\n")


async def cancelled(load: Load, tier: str) -> str:
    """At another moment each time: while it is decided, started, running."""
    call_id = load.palyra.installation.ports.ids.ulid()
    run = load.session(tier)
    task = asyncio.ensure_future(run.call(PROCESS, {"command": "sleep", "args": ["300"]}, call_id=call_id))
    await asyncio.sleep(next(load._number) % 40 / 200)
    run.cancel(call_id)
    while not task.done():
        run.cancel(call_id)
        await asyncio.wait([task], timeout=0.05)
    return expect(task.result(), Status.CANCELLED)


async def abandoned(load: Load, tier: str) -> str:
    """The caller itself is cancelled."""
    task = asyncio.ensure_future(load.session(tier).call(PROCESS, {"command": "sleep", "args": ["300"]}))
    await asyncio.sleep(next(load._number) % 40 / 200)
    task.cancel()
    try:
        outcome = await task
    except asyncio.CancelledError:
        return ""
    return f"it ended by itself: {outcome.status}"


async def refused(load: Load, tier: str) -> str:
    outcome = await load.session(tier).call(PROCESS, {"command": "nobody-listed-this"})
    return expect(outcome, Status.REFUSED)


Kind = Callable[[Load, str], Awaitable[str]]
KINDS: tuple[Kind, ...] = (warm, too_much, warm, cold, warm, cancelled, survivor, warm, too_long, abandoned, refused)


def expect(outcome: Outcome, status: Status, stdout: str | None = None) -> str:
    """Nothing, or how the call ended otherwise."""
    if outcome.status is not status:
        return f"{outcome.status} {outcome.reason}: {outcome.message} {outcome.output.get('stderr', '')}"
    if stdout is not None and outcome.output.get("stdout") != stdout:
        return f"it said {outcome.output.get('stdout')!r}"
    return ""
