"""Holds an MCP session to a number of calls in a minute and in a day, in place of a number in all.

A session cannot begin a new run when its calls are used up: only its user can, by restarting the client. So a count
over the last minute and the last day bounds it, unless the operator set `max_calls_per_run`. Calls that policy
refused count too. Malformed ones have no rows to count: `max_attempts_per_run` bounds them.

Not here: budgets of runs and days (engine/budget), what policy makes of calls in the last minute (policy/bundles).
"""

from __future__ import annotations

from palyra.engine.ports import Ports, Standing
from palyra.engine.runs import OPEN_ENDED
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected

DAY_MS = 24 * 3600 * 1000


def check_pace(trip: Trip, ports: Ports, standing: Standing) -> None:
    """Raise Rejected(BUDGET_SPENT) when the session's calls come too fast."""
    run, config, budget = trip.run, ports.config.tool_call, standing.budget
    if run.calls_max != OPEN_ENDED or not config.has_open_sessions:
        return
    facts = standing.facts or ports.run_facts.read(run.owner)
    made = facts.calls_last_minute - facts.denials_last_minute
    most = config.max_calls_per_minute
    if most and max(made, facts.denials_last_minute) >= most:
        what = f"made {made} calls" if made >= most else f"had {facts.denials_last_minute} calls refused"
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"This session has {what} in the last minute; {most} is the most.",
            "Wait a minute, then go on. An operator can raise max_calls_per_minute in [tool_call].",
        )
    most = config.max_calls_per_day
    if not most or budget is None or budget.calls_used + budget.attempts_used < most:
        return
    used = ports.run_facts.count_calls(run.owner, since_unix_ms=ports.clock.now_unix_ms() - DAY_MS)
    if used >= most:
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"This session has made {used} calls in the last 24 hours; {most} is the most.",
            "It goes on when the first of them are a day old. An operator can raise max_calls_per_day in [tool_call].",
        )
