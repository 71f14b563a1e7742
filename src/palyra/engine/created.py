"""Remembers which guarded paths the calls of a run created, so that its next calls may change them.

Invariants:
- A background process finds every guarded path closed: it runs while the operator works.
- A run that ends with its one call remembers nothing.
- A stamp is durable before the call is answered. Without one the path is closed.

Not here: which paths those are (guard/look_created), the rows (wiring/created_paths).
"""

from __future__ import annotations

import logging

from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Trip
from palyra.errors import StateError
from palyra.protocol.process_input import ProcessInput

CLOCK_TICK_MS = 10
"""The kernel stamps files with a clock that may be one tick (at most 10 ms) behind."""
log = logging.getLogger("palyra.engine")


def created_before(trip: Trip, ports: Ports, process: ProcessInput | None = None) -> tuple[tuple[str, str], ...]:
    """Return (path, stamp) of what earlier calls of the run created."""
    outlives = process is not None and process.lifetime is not None
    if ports.created_paths is None or outlives or trip.run.scope is RunScope.CALL or trip.request.fresh_run:
        return ()
    return tuple(ports.created_paths.read(trip.run.owner).items())


async def note_created(trip: Trip, ports: Ports, *, since_unix_ms: int) -> None:
    """Keep the stamps of what the run has created by the end of a call that began at `since_unix_ms`."""
    if ports.created_paths is None or trip.run.scope is RunScope.CALL:
        return
    assert trip.sights is not None
    assert trip.look is not None
    before = dict(trip.look.created)
    during = range(since_unix_ms - CLOCK_TICK_MS, ports.clock.now_unix_ms() + 1)
    now = ports.look.created(trip.sights.workspace, during_unix_ms=during)
    changes: dict[str, str | None] = {path: None for path in before if path not in now}
    changes |= {path: stamp for path, stamp in now.items() if before.get(path) != stamp}
    if not changes:
        return
    try:
        await ports.created_paths.write(trip.run.owner, changes)
    except StateError as error:
        log.warning("call %s: what it created stays closed to the next call: %s", trip.call_id, error)
