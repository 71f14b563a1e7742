"""A call id that was seen before: the caller gets the first outcome, nothing runs twice.

Rules: the same id with the same tool, principal and input returns the first outcome; with anything else it is
CALL_ID_REUSED, and nothing of the first call is told (it may be another principal's). A first call that is still
under way is waited for; if its owner died, it is closed as interrupted and that is the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from palyra.engine.assessment import validate
from palyra.engine.ports import Ports
from palyra.engine.recover import close_interrupted
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.outcome import Outcome
from palyra.model.record import StoredCall
from palyra.protocol.registry import Registry
from palyra.protocol.wire import restore_outcome

POLL_S = 0.02


async def first_outcome(
    trip: Trip, ports: Ports, registry: Registry, *, is_live: Callable[[str], bool]
) -> Outcome | None:
    """The outcome of the first call with this id, or None when there was none.

    `is_live`: this engine has the call under way. One that is open, ours and not under way was left behind.

    On a reused id the trip gets a fresh one: the refusal is journaled under that, so ids stay unique.
    """
    stored = await ports.journal.find_call(trip.call_id)
    if stored is None:
        return None
    if not _same(trip, stored, registry):
        reused = trip.call_id
        trip.call_id = ports.ids.ulid()
        trip.reused_id = reused
        return None
    while stored.recorded is None:
        abandoned = stored.owner == ports.owners.me() and not is_live(stored.call_id)
        if stored.owner is None or abandoned or ports.owners.is_gone(stored.owner):
            await close_interrupted(stored, ports)
        else:
            await asyncio.sleep(POLL_S)
        found = await ports.journal.find_call(stored.call_id)
        assert found is not None, "calls are never removed while they are open"
        stored = found
    return restore_outcome(stored.outcome, stored.recorded)


def _same(trip: Trip, stored: StoredCall, registry: Registry) -> bool:
    with suppress(Rejected):  # a refused input repeats as the same refusal: its digest is set already
        validate(trip, registry)
    return (
        stored.principal == str(trip.run.context.principal)
        and stored.tool == trip.request.tool
        and stored.input_sha256 == trip.input_sha256
    )


def refuse_reused(trip: Trip) -> None:
    if trip.reused_id is not None:
        raise Rejected(
            Reason.CALL_ID_REUSED,
            f"Call id {trip.reused_id} was used before, for another call.",
            "Send a fresh call_id, or leave it out.",
        )
