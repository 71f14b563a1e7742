"""May whoever asked for a call still ask, when its turn has come?

A credential is checked at the door. A call may wait long after that, for a person or behind others of its run, and a
token that was revoked or has expired meanwhile must begin nothing any more. Rules: the door says how to look again;
what came through within a blink is not looked at twice, as little as a stream is more often than each second.

Not here: what holds (tokens/rules), calls that run already: they go on as they were decided (docs/threat-model.md).
"""

from __future__ import annotations

from palyra.engine.ports import Ports
from palyra.engine.trip import Trip

BLINK_US = 100_000
"""No longer than one look at an approval takes, so that a call that waited for a person always waited longer."""


def check_still_asked(trip: Trip, ports: Ports) -> None:
    """In its turn, before it is opened. Raises Rejected."""
    lapse = trip.request.lapse
    if lapse is None or ports.clock.monotonic_us() - trip.asked_us < BLINK_US:
        return
    refusal = lapse()
    if refusal is not None:
        raise refusal
