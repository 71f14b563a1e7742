"""Processor time of one call under 8 callers: the engine's process, its sandboxes and the programs, end to end.

A round is 64 calls of `true`, eight at a time, each caller in a run of its own. What is counted is what the kernel
counted for this process and for all children that it reaped, so a call that is answered sooner by burning more
processors does not look better.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Contender, Row
from bench.installation import Ground, check_outcome

CALLERS, EACH = 8, 8
NAME = "palyra, 8 callers"


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with open_callers(ground) as ours:
        yield Row(
            name="callers",
            title="Processor time of one tier C call of `true`, 8 callers at once",
            note="All of a call: decided, journaled, isolated, captured, signed; its sandbox and its program included.",
            contenders=(ours,),
        )


@contextmanager
def open_callers(ground: Ground) -> Iterator[Contender]:
    from palyra import AsyncPalyra
    from palyra.errors import PalyraError

    with asyncio.Runner() as runner:
        try:
            palyra = runner.run(AsyncPalyra.open(home=str(ground.home)).start())
        except PalyraError as error:
            yield Contender(name=NAME, run=None, why_missing=str(error))
            return
        runs = [palyra.run(principal=f"user:bench{n}", workspace=ground.workspace, tier="c") for n in range(CALLERS)]

        async def call_each() -> None:
            async def caller(run: object) -> None:
                for _ in range(EACH):
                    check_outcome(await run.call("palyra.process.run", {"command": "true"}))  # type: ignore[attr-defined]

            await asyncio.gather(*(caller(run) for run in runs))
            if palyra.installation.executor.pool is not None:
                await palyra.installation.executor.pool.settled()

        def one_round() -> int:
            before = processor_ns()
            runner.run(call_each())
            return (processor_ns() - before) // (CALLERS * EACH)

        try:
            yield Contender(name=NAME, run=one_round)
        finally:
            runner.run(palyra.close())


def processor_ns() -> int:
    """Return the processor time of this process and of the children it has reaped."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(usage.ru_utime + usage.ru_stime for usage in used) * 1e9)
