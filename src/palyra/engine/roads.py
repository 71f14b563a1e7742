"""The roads that not every call takes: imported when the first such call comes, because a call from the command line
lives for a blink, and most of that is spent on importing.

Not here: anything but the way there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from palyra.canon import Json
from palyra.engine.ports import Policies, Ports, Standing
from palyra.engine.trip import Ending, Trip
from palyra.model.call import Door

if TYPE_CHECKING:
    from palyra.engine.approval import Assess
    from palyra.engine.builtin import Handler
    from palyra.model.grant import Decision
    from palyra.model.outcome import Outcome
    from palyra.model.plan import FetchPlan, ProcessPlan
    from palyra.model.wasm import WasmPlan
    from palyra.policy.request import Request

HTTP_FETCH = "palyra.http.fetch"


def prepare_inside(trip: Trip, ports: Ports) -> None:
    """2, 3 of a program of ours inside a sandbox."""
    assert trip.tool is not None
    if trip.tool.spec.name == HTTP_FETCH:
        from palyra.engine.fetch import prepare_fetch

        prepare_fetch(trip, ports)
    else:
        from palyra.engine.inside import prepare_inside as prepare

        prepare(trip, ports)


def check_pace(trip: Trip, ports: Ports, standing: Standing) -> None:
    """Of a call that came over MCP."""
    if trip.run.context.door is Door.MCP:
        from palyra.engine.pace import check_pace as check

        check(trip, ports, standing)


def prepare_plugin(trip: Trip, ports: Ports) -> None:
    """2, 3 of a guest."""
    from palyra.engine.plugin import prepare_plugin as prepare

    prepare(trip, ports)


def make_guest_plan(trip: Trip, ports: Ports) -> WasmPlan:
    from palyra.engine.plugin import make_guest_plan as make

    return make(trip, ports)


def compare_candidate(candidate: Policies, request: Request, live: Decision) -> dict[str, Json] | None:
    from palyra.engine.shadow import compare_candidate as compare

    return compare(candidate, request, live)


async def approve(trip: Trip, ports: Ports, assess: Assess) -> Ending | None:
    from palyra.engine.approval import approve as ask

    return await ask(trip, ports, assess)


async def run_inside(trip: Trip, plan: ProcessPlan, ports: Ports) -> Ending:
    from palyra.engine.inside import run_inside as run

    return await run(trip, plan, ports)


async def run_fetch(trip: Trip, plan: FetchPlan, ports: Ports) -> Ending:
    from palyra.engine.fetch import run_fetch as run

    return await run(trip, plan, ports)


async def run_plugin(trip: Trip, plan: WasmPlan, ports: Ports) -> Ending:
    from palyra.engine.plugin import run_plugin as run

    return await run(trip, plan, ports)


async def run_builtin(trip: Trip, ports: Ports) -> Mapping[str, Json]:
    """What the engine itself answers."""
    assert trip.tool is not None
    assert trip.call is not None
    return await _handlers()[trip.tool.spec.name](trip.call, ports)


@cache
def _handlers() -> Mapping[str, Handler]:
    """Once: even of a module that is there already `import` asks several things, and these answer in microseconds."""
    from palyra.engine.builtin import HANDLERS

    return HANDLERS


async def start_background(trip: Trip, plan: ProcessPlan, ports: Ports) -> Ending:
    from palyra.engine.background import start_background as start

    return await start(trip, plan, ports)


async def take_back(trip: Trip, outcome: Outcome, ports: Ports) -> None:
    from palyra.engine.background import take_back as take

    await take(trip, outcome, ports)
