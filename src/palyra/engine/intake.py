"""A request as it can stand in a record, whatever a caller put into its fields.

Doors check their own wires; Python code can hand in anything. What has no place in a record (a tool's name or a call id
that is no such thing) is replaced and becomes the refusal of the call, so that it is attested and journaled like every
other. Not here: the input (protocol/parse), the run (engine/runs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from palyra.engine.trip import CallRequest
from palyra.errors import Reason, Rejected
from palyra.model.call import parse_ulid
from palyra.redact.values import redact_text

MAX_TOOL_CHARS = 256


Secrets = Callable[[str], Sequence[tuple[str, bytes]]]


def settle_request(request: CallRequest, knows: Callable[[str], bool], secrets: Secrets) -> CallRequest:
    """`knows`: whether a tool has this name; `secrets`: what is known in a run."""
    given: object = request.tool
    call_id, refusal = request.call_id, request.refusal
    tool = _name_of(given, knows, lambda: secrets(request.run.run_id)) if isinstance(given, str) else ""
    if not isinstance(given, str):
        refusal = refusal or Rejected(
            Reason.BAD_ARGUMENTS, "The tool's name must be a string.", "See palyra tools list."
        )
    if call_id is not None:
        try:
            parse_ulid(call_id, what="call_id")
        except Rejected as wrong:
            call_id, refusal = None, refusal or wrong
    if tool == given and call_id == request.call_id and refusal is request.refusal:
        return request
    return replace(request, tool=tool, call_id=call_id, refusal=refusal)


def _name_of(tool: str, knows: Callable[[str], bool], secrets: Callable[[], Sequence[tuple[str, bytes]]]) -> str:
    """A name that is no tool's may be anything, a secret too."""
    if knows(tool):
        return tool
    name = tool[:MAX_TOOL_CHARS].encode("utf-8", "backslashreplace").decode("utf-8")
    return name if knows(name) else redact_text(name, secrets())
