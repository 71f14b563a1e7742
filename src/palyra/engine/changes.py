"""Which files a call changed: a look before it runs, one after, and the difference in its output.

Only where it was asked for (`--changes`, `list_changes`): two looks at a large workspace cost more than a small call.
The list is part of the output, so the attestation's `output_sha256` covers it; names are redacted like everything else.
What another call in the same workspace did meanwhile is in it too: it says what changed, not who did it.
"""

from __future__ import annotations

import asyncio

from palyra.canon import Json
from palyra.engine.ports import Ports
from palyra.engine.trip import Trip
from palyra.model.changes import Snapshot, compare
from palyra.redact.values import redact_json


async def look_before(trip: Trip, ports: Ports) -> Snapshot | None:
    """None where nobody asked."""
    wanted = trip.request.changes or ports.config.tool_call.process_runner.list_changes
    if not wanted or trip.sights is None or not trip.sights.workspace.path:
        return None
    return await asyncio.to_thread(ports.look.snapshot, trip.sights.workspace.path)


async def changes_since(before: Snapshot, trip: Trip, ports: Ports) -> Json:
    assert trip.sights is not None
    after = await asyncio.to_thread(ports.look.snapshot, trip.sights.workspace.path)
    return redact_json(compare(before, after).as_json(), ports.secrets.known_values(trip.run.run_id))
