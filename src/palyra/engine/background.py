"""A call that starts a background process: what it may ask for, its limits, its order, and what its caller is told.

Rules: the lifetime replaces the call's time limit, and is in the plan that is decided, approved and attested; a run
that ends with this one call cannot own a process; the id is opaque and made here.

Not here: keeping the process (a port), the tools that look at it (engine/builtin).
"""

from __future__ import annotations

from contextlib import suppress

from palyra.canon import Json, sha256_hex
from palyra.config.tool_call import ProcessRunnerConfig
from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Ending, Trip
from palyra.errors import PalyraError, Reason, Rejected
from palyra.model.limits import MIB, Limits
from palyra.model.outcome import Execution, Outcome, Status, Usage
from palyra.model.plan import ProcessPlan
from palyra.model.process import BackgroundProcess, Lifetime, NotStarted, StartOrder
from palyra.protocol.process_input import ProcessInput

OUTPUT_BYTES = 256 * MIB
"""In all. Its log keeps the last MiB; a program that never stops writing is ended."""


def check_background(trip: Trip, process: ProcessInput, runner: ProcessRunnerConfig) -> None:
    if process.lifetime is None:
        return
    if runner.max_background_per_run == 0:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            "Background processes are switched off.",
            "Set max_background_per_run in [tool_call.process_runner].",
        )
    if process.lifetime is Lifetime.RUN_OWNED and trip.run.scope is RunScope.CALL:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "This run ends with this call, and would end any process it owns.",
            'Ask for "lifetime": "detached", or name a run that continues, with --run ID.',
        )


def background_limits(limits: Limits, runner: ProcessRunnerConfig) -> Limits:
    """The run's, but for time and output: the call's own limits on those have no bearing on what outlives it."""
    given = limits.as_json() | {"wall_ms": runner.background_lifetime_ms, "output_bytes": OUTPUT_BYTES}
    return Limits(**given)


async def start_background(trip: Trip, plan: ProcessPlan, ports: Ports) -> Ending:
    """9 — for a process that outlives its call; its output is redacted where it is logged."""
    try:
        process = await ports.background.start(_order(trip, plan, ports))
    except NotStarted as error:
        return Ending(status=Status.FAILED, reason=Reason.SPAWN_FAILED, message=error.detail, hint=error.hint)
    wall_us = ports.clock.monotonic_us() - trip.started_us
    usage = Usage(wall_us=wall_us, cpu_us=None, max_rss_bytes=None)
    return Ending(
        status=Status.COMPLETED,
        success=True,
        execution=Execution(status=Status.COMPLETED, usage=usage),
        output=_output(process),
    )


async def take_back(trip: Trip, outcome: Outcome, ports: Ports) -> None:
    """A caller that was cancelled does not know the process it has started: nobody would ever stop it."""
    process_id = outcome.output.get("process_id")
    if process_id is not None and trip.process is not None and trip.opened is not None:
        owner = trip.run.owner
        with suppress(PalyraError):  # it is bounded and listed all the same
            await ports.background.stop(owner, process_id, by=owner.principal)


def _order(trip: Trip, plan: ProcessPlan, ports: Ports) -> StartOrder:
    assert trip.sights is not None
    sight, lifetime = trip.sights.workspace, Lifetime(plan.lifetime)
    holds = lifetime is Lifetime.RUN_OWNED and trip.run.scope is RunScope.SESSION
    return StartOrder(
        process_id=ports.ids.ulid(),
        owner=trip.run.owner,
        call_id=trip.call_id,
        plan=plan,
        plan_sha256=sha256_hex(trip.plan_bytes),
        lifetime=lifetime,
        expires_unix_ms=ports.clock.now_unix_ms() + plan.limits.wall_ms,
        holder=ports.owners.me() if holds else None,
        max_running=ports.config.tool_call.process_runner.max_background_per_run,
        secrets=tuple(ports.secrets.known_values(trip.run.run_id)),
        workspace=_bytes(sight.path),
        guarded=tuple(_bytes(path) for path in (*sight.protected, *sight.masked)),
    )


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _output(process: BackgroundProcess) -> dict[str, Json]:
    return {
        "process_id": process.process_id,
        "pid": process.pid,
        "lifetime": process.lifetime.value,
        "expires_at_unix_ms": process.expires_unix_ms,
    }
