"""Runs that were ended a moment ago: what was asked before that does not begin after it.

Ending a run cancels its calls that are under way. One that is still on its way in (looked up by its id, taken on, read
from a socket) is not among them, and would run, or leave a background process, in a run that its caller was told is
over.

Not here: calls that come afterwards; a door that keeps runs refuses those.
"""

from __future__ import annotations

from collections import OrderedDict

from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.process import ProcessOwner

MOST = 4096
"""Remembered; a call is on its way for milliseconds."""


class EndedRuns:
    def __init__(self) -> None:
        self._ended_us: OrderedDict[ProcessOwner, int] = OrderedDict()

    def note(self, owner: ProcessOwner, at_us: int) -> None:
        self._ended_us.pop(owner, None)
        self._ended_us[owner] = at_us
        while len(self._ended_us) > MOST:
            self._ended_us.popitem(last=False)

    def check(self, trip: Trip) -> None:
        """In its turn, before it is opened. Raises Rejected."""
        ended_us = self._ended_us.get(trip.run.owner)
        if ended_us is not None and trip.asked_us <= ended_us:
            raise Rejected(
                Reason.BAD_ARGUMENTS, "This run was ended while the call was being prepared.", "Make another."
            )
