"""How a call ends, in values: its record made, closed without waiting where that can be, its large output kept.

Rules: what goes wrong here was undone, and is said by None: then the walk ends the longer way, which never fails to
answer. Without its entry a call is not reported as done. A refusal, an error of our own, a record that
cannot be written and one that says the least are endings like any other.

Not here: which of these is tried first, and what becomes of an id that was taken meanwhile (engine/walk); what is in
a record (engine/record).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from palyra.canon import canonical, digest
from palyra.engine.ports import Ports
from palyra.engine.record import make_closing, with_receipt
from palyra.engine.trip import Ending, Trip
from palyra.errors import DuplicateCall, Reason, Rejected, StateError
from palyra.model.outcome import INLINE_BYTES, Outcome, Status
from palyra.model.reasons import SHORTAGES
from palyra.model.record import Closing

log = logging.getLogger("palyra.engine")


def make_record(trip: Trip, ports: Ports, ending: Ending) -> tuple[Outcome, Closing] | None:
    """11, for a call that ran. None where something is to be kept first; what goes wrong here goes wrong again, and is
    seen to, when the walk ends the longer way."""
    if trip.opened is None:
        return None
    try:
        output_bytes = canonical(ending.output)
        if trip.request.project and len(output_bytes) > INLINE_BYTES:
            return None
        return make_closing(trip, ports, ending, output_bytes)
    except (ValueError, TypeError, RecursionError):
        return None


def close_now(ports: Ports, outcome: Outcome, closing: Closing) -> Outcome | None:
    """12 without a task of its own, where nothing has to be waited for. What goes wrong here was undone."""
    try:
        recorded = ports.journal.close_now(closing)
    except (DuplicateCall, StateError):
        return None
    return None if recorded is None else with_receipt(outcome, recorded)


async def close_made(ports: Ports, outcome: Outcome, closing: Closing) -> Outcome | None:
    """12 in the call's own task: another one costs more than the commit that it shares."""
    try:
        return with_receipt(outcome, await ports.journal.close_call(closing))
    except (DuplicateCall, StateError):
        return None


async def keep_large_output(trip: Trip, ports: Ports, ending: Ending) -> Ending:
    """Agents' doors show a preview of large output; the whole, redacted, becomes artifacts of the run."""
    if not (trip.request.project and trip.tool is not None and ending.output):
        return ending
    from palyra.protocol.projection import attach, project

    projected = project(ending.output, trip.tool.spec)
    if not projected.overflow:
        return ending
    trip.full_output_sha256 = digest(ending.output)
    refs = {}
    for name, data in projected.overflow:
        try:
            refs[name] = await ports.artifacts.put(trip.run.run_id, name, data)
        except (Rejected, StateError) as error:
            log.warning("call %s: %s could not be kept: %s", trip.call_id, name, error)
    trip.artifacts += tuple(refs.values())
    return replace(ending, output=attach(projected, refs))


def bare(trip: Trip) -> Trip:
    """The least that can always be recorded: who, when, which input by its digest."""
    return replace(trip, call=None, facts=None, job=None, plan=None, plan_bytes=b"", cedar=None, artifacts=())


def keeps_no_record(trip: Trip, ending: Ending) -> bool:
    """Whether the caller may send the same call again under its id: there was no capacity, and nothing began."""
    return ending.reason is Reason.BUSY and trip.opened is None and not trip.request.accepted


def refused(refusal: Rejected) -> Ending:
    return Ending(status=Status.REFUSED, reason=refusal.reason, message=refusal.detail, hint=refusal.hint)


def broken(error: Exception) -> Ending:
    """For an error of our own. Where the machine ran out of something (descriptors, processes, memory, disk) it says of
    what, and what to do; everything else is in the log, because nothing internal leaves it."""
    message, hint = "Palyra failed while handling this call; its log says where.", None
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        message, hint = f"Palyra could not continue with this call: {error.strerror}.", SHORTAGES[error.errno]
    return Ending(status=Status.FAILED, reason=Reason.INTERNAL, message=message, hint=hint)


def unrecorded(ending: Ending, error: StateError) -> Ending:
    """Fail closed: without its entry a call is not reported as done, though its output is shown."""
    refused = ending.status is Status.REFUSED
    known = error.detail.startswith("The journal ")  # it says so itself
    return replace(
        ending,
        status=Status.REFUSED if refused else Status.FAILED,
        success=False,
        reason=Reason.JOURNAL_DOWN if refused else Reason.INTERNAL,
        message=error.detail if known else f"The journal cannot be written: {error.detail}",
        hint=error.hint,
    )
