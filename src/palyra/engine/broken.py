"""A call that failed for an error of our own: what its caller is told.

Where the machine ran out of something (descriptors, processes, memory, disk) the answer says of what, and what to do;
everything else is in the log, because nothing internal leaves it.
"""

from __future__ import annotations

from palyra.engine.trip import Ending
from palyra.errors import Reason
from palyra.model.outcome import Status
from palyra.model.reasons import SHORTAGES


def broken(error: Exception) -> Ending:
    message, hint = "Palyra failed while handling this call; its log says where.", None
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        message, hint = f"Palyra could not go on with this call: {error.strerror}.", SHORTAGES[error.errno]
    return Ending(status=Status.FAILED, reason=Reason.INTERNAL, message=message, hint=hint)
