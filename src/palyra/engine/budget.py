"""Step 5, and what a call reserves and spends: a call's limits within what its run and its principal have left.

Rules: what is left narrows the limits of the call before it is planned, so that its program is ended before it can
spend more; the same limits are reserved with the intent and settled with the result. Step 8 judges again, under the
lock.

Not here: the arithmetic (budget/ledger), the rows (the journal port).
"""

from __future__ import annotations

from dataclasses import replace

from palyra.budget.ledger import Ledger, check_call, check_reserve, check_share_calls, narrow, narrow_fuel
from palyra.engine.ports import Ports
from palyra.engine.trip import Trip
from palyra.errors import Unenforceable
from palyra.model.budget import NOTHING, Spending
from palyra.model.net import EgressMode
from palyra.model.outcome import Execution, Status
from palyra.model.plan import Plan, ProcessPlan
from palyra.model.wasm import WasmPlan

_FUEL_UNKNOWN = frozenset({Status.TIMEOUT, Status.TRAPPED, Status.CANCELLED})


async def check_budget(trip: Trip, ports: Ports, budget: Ledger | None) -> None:
    """5 — refuse early what the journal's transaction would refuse anyway (step 8 is exact under concurrency)."""
    run = trip.run
    if budget is not None:
        check_call(budget)
    elif run.most.is_unlimited and run.quota.is_unlimited:
        return
    else:
        budget = Ledger(calls_max=run.calls_max, attempts_max=run.attempts_max, most=run.most)
    share = None if run.quota.is_unlimited else await ports.journal.share(run.record)
    if share is not None:
        check_share_calls(share)
    for account in (budget, share):
        if account is not None and not account.most.is_unlimited:
            check_reserve(account, NOTHING)
            if account.most.egress_bytes is not None:
                _check_metered(trip)
            if trip.job is not None:
                trip.job = replace(trip.job, limits=narrow(account, trip.job.limits))
            if trip.guest is not None:
                fuel = narrow_fuel(account, trip.guest.fuel)
                trip.guest = replace(trip.guest, limits=narrow(account, trip.guest.limits), fuel=fuel)


def _check_metered(trip: Trip) -> None:
    """Traffic that nobody counts cannot be held to a budget."""
    if trip.job is not None and trip.job.net.mode is not EgressMode.STRICT:
        raise Unenforceable(
            ("HOST_ALLOWLIST",),
            "The run has a budget for network traffic, and this call's network is not metered.",
            "Use strict egress with --allow-host HOST, or lift egress_bytes in [budget].",
        )


def reservation_of(plan: Plan) -> Spending:
    """The most a call can use. Tools of our own are answered at once and count as calls alone."""
    if isinstance(plan, WasmPlan):
        wasm = plan.wasm
        return Spending(wall_us=wasm.wall_ms * 1000, output_bytes=wasm.output_bytes, fuel=wasm.fuel)
    if not isinstance(plan, ProcessPlan):
        return NOTHING
    limits = plan.limits
    return Spending(wall_us=limits.wall_ms * 1000, cpu_us=limits.cpu_ms * 1000, output_bytes=limits.output_bytes)


def spending_of(trip: Trip, execution: Execution) -> Spending:
    """What it used, as the launcher saw it. Processor time that this host cannot tell counts as all that was allowed,
    where there is a budget for it."""
    plan, run = trip.plan, trip.run
    if isinstance(plan, WasmPlan) and trip.opened is not None:
        return _spent_by_guest(plan, execution)
    if not isinstance(plan, ProcessPlan) or plan.lifetime or trip.opened is None:
        return NOTHING
    usage, budgeted = execution.usage, run.most.cpu_us is not None or run.quota.most.cpu_us is not None
    unknown_us = plan.limits.cpu_ms * 1000 if budgeted else 0
    return Spending(
        wall_us=usage.wall_us,
        cpu_us=unknown_us if usage.cpu_us is None else usage.cpu_us,
        output_bytes=usage.output_bytes,
        egress_bytes=sum(c.bytes_up + c.bytes_down for c in execution.connections),
        fuel=usage.fuel or 0,
    )


def _spent_by_guest(plan: WasmPlan, execution: Execution) -> Spending:
    """A guest that its deadline interrupted, or whose worker was lost, keeps its count of fuel to itself: then all it
    was given is spent."""
    usage = execution.usage
    unknown = plan.wasm.fuel if execution.status in _FUEL_UNKNOWN else 0
    return Spending(
        wall_us=usage.wall_us,
        output_bytes=usage.output_bytes,
        egress_bytes=sum(c.bytes_up + c.bytes_down for c in execution.connections),
        fuel=unknown if usage.fuel is None else usage.fuel,
    )
