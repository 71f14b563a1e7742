"""A run's end, as an operator asks for it: no more calls, and what is under way in it ended.

The daemon ends what runs in it; opened by another process, an installation ends the run's background processes and
what is its own, and calls of other processes go on to their end. Not here: what it means to the row and to the journal
(wiring/run_terms), the same for a run's own client (daemon/runs).
"""

from __future__ import annotations

from palyra.model.call import Door
from palyra.model.outcome import BudgetView
from palyra.wiring.embedded import Installation
from palyra.wiring.run_terms import RunTerms
from palyra.wiring.runs import RunView


def run_terms(installation: Installation) -> RunTerms:
    return RunTerms(installation.writer, now_unix_ms=installation.ports.clock.now_unix_ms)


async def end_run(installation: Installation, run_id: str, *, by: str) -> RunView | None:
    """As it is then; None where there is no such run. Again, it changes nothing."""
    terms = await run_terms(installation).end_begun(run_id, by=by)
    if terms is None:
        return None
    run = terms.run(installation.config, door=Door.CLI)
    await installation.engine.end_run(run)
    return installation.runs.find(run_id) or RunView(
        run_id=run_id,
        principal=terms.principal,
        workspace=terms.workspace,
        created_unix_ms=terms.created_unix_ms,
        budget=BudgetView(calls_max=run.calls_max, attempts_max=run.attempts_max),
        ended_unix_ms=terms.ended_unix_ms,
    )
