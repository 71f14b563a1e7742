"""What a refused caller is told to do, in words that work as they are printed.

Rules: nobody is left with a code alone; where a hint names a command about this call, this run or this tool, the words
CALL_ID, RUN_ID and TOOL become theirs, so that it can be typed. A tool's name that is no plain name is left out: it was
chosen by the caller and could carry anything into a line that people copy.

Not here: the hints themselves, which stand with whoever refuses, in the policies and in model/reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palyra.late import late
from palyra.model.reasons import REASONS

if TYPE_CHECKING:
    from palyra.engine.trip import Ending, Trip

OPERATORS = "An operator can "
"""Begins what only an operator can do, in every hint that reaches an agent: it stands last, so that programs can tell
it apart (docs/spec/protocol.md)."""
_MEANT = late(r"\b(?:CALL_ID|RUN_ID|TOOL)\b")
_PLAIN_TOOL = late(r"[A-Za-z][A-Za-z0-9._-]{0,127}")


def hint_of(trip: Trip, ending: Ending) -> str | None:
    """Where nothing better is known, what the reference says about the reason."""
    hint = ending.hint or (REASONS[ending.reason].remedy if ending.reason is not None else None)
    if hint is None:
        return None
    words = {"CALL_ID": trip.call_id, "RUN_ID": trip.run.run_id, "TOOL": _typed(trip.request.tool)}
    return _MEANT.sub(lambda found: words[found[0]], hint)


def split_hint(hint: str) -> tuple[str, str]:
    """Return what the caller can do, and what only an operator can: the sentences from "An operator can" on."""
    at = hint.find(OPERATORS)
    if at < 0 or not (at == 0 or hint[at - 1] == " "):
        return hint, ""
    return hint[:at].rstrip(), hint[at:]


def operator_hint(trip: Trip, ending: Ending) -> str | None:
    """Return what only an operator can do about a refusal by policy; None where no exception can lift it."""
    if not trip.is_liftable or ending.reason is not getattr(trip.decision, "reason", None):
        return None
    return f"palyra policy allow {trip.call_id}"


def about_tool(hint: str | None, tool: str) -> str | None:
    """For a call that was not made, which has no id of its own."""
    return hint and _MEANT.sub(lambda found: _typed(tool) if found[0] == "TOOL" else found[0], hint)


def _typed(tool: str) -> str:
    return tool if _PLAIN_TOOL.fullmatch(tool) else "TOOL"
