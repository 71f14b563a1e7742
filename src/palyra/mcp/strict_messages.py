"""One JSON-RPC message read strictly, as `/v1/calls` reads its body, before the SDK sees it.

Rules: every message that cannot be understood gets a JSON-RPC error, with its id where that can be told, else null. The
SDK's own reader answers none of these over stdio, keeps the last of two equal keys, and reads a message that is both
request and answer as one of them.

Not here: lines and their bounds (stdio), bodies (bodies), the journal entry of a call among them (server).
"""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from palyra.errors import Reason, Rejected
from palyra.protocol.parse import MAX_DEPTH, parse_value
from palyra.values import dataclass

MAX_VALUES = 65_536
_ENVELOPE_DEPTH = 2
"""Of a call's input, in its parameters, in the message."""
_HINT = 'Send one JSON-RPC 2.0 message: {"jsonrpc": "2.0", "id": …, "method": "…", "params": {…}}.'


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """A message that is answered with an error and goes no further."""

    code: int
    refusal: Rejected
    request_id: str | int | None
    is_call: bool
    tool: object = None
    """As the message names it."""

    def answer(self, data: Any = None) -> types.JSONRPCError:
        said = {"reason": self.refusal.reason.value, "hint": self.refusal.hint}
        error = types.ErrorData(code=self.code, message=self.refusal.detail, data=said if data is None else data)
        return types.JSONRPCError(jsonrpc="2.0", id=self.request_id, error=error)


def check_message(data: bytes) -> NotUnderstood | None:
    """None for one message that keeps every rule."""
    try:
        value = parse_value(data, max_depth=MAX_DEPTH + _ENVELOPE_DEPTH, max_values=MAX_VALUES)
    except Rejected as error:
        refusal = Rejected(error.reason, error.detail.replace("The input", "The message"), error.hint or _HINT)
        return _refuse(types.PARSE_ERROR, refusal, _read_leniently(data))
    what = _find_fault(value)
    if what is None:
        return None
    return _refuse(types.INVALID_REQUEST, Rejected(Reason.MALFORMED, what, _HINT), value)


def too_long(max_bytes: int) -> NotUnderstood:
    """For a line of which nothing is kept."""
    refusal = Rejected(Reason.TOO_LARGE, f"The message has more than {max_bytes} bytes.", "Send less at once.")
    return _refuse(types.INVALID_REQUEST, refusal, None)


def _refuse(code: int, refusal: Rejected, value: Any) -> NotUnderstood:
    message = value if isinstance(value, dict) else {}
    params = message.get("params")
    return NotUnderstood(
        code=code,
        refusal=refusal,
        request_id=_id_of(message),
        is_call=message.get("method") == "tools/call",
        tool=params.get("name") if isinstance(params, dict) else None,
    )


def _find_fault(value: Any) -> str | None:
    if isinstance(value, list):
        return "A batch is not taken: each message comes by itself."
    if not isinstance(value, dict):
        return "The message must be one JSON object."
    if value.get("jsonrpc") != "2.0":
        return 'The message does not say "jsonrpc": "2.0".'
    if "id" in value and not _is_id(value["id"]) and not ("error" in value and value["id"] is None):
        return "The id must be a string or an integer."
    answers = [name for name in ("result", "error") if name in value]
    if "method" not in value:
        return _find_fault_of_answer(value, answers)
    if answers:
        return f"The message is a request and an answer in one: it has method and {answers[0]}."
    if not isinstance(value["method"], str):
        return "The method must be a string."
    if not isinstance(value.get("params", {}), dict):
        return "The parameters must be an object."
    return None


def _find_fault_of_answer(value: dict[str, Any], answers: list[str]) -> str | None:
    if len(answers) != 1:
        return "The message has result and error." if answers else "The message has no method."
    if "id" not in value:
        return "The answer has no id."
    return None if isinstance(value[answers[0]], dict) else f"The {answers[0]} must be an object."


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _id_of(message: dict[str, Any]) -> str | int | None:
    found = message.get("id")
    if not isinstance(found, str | int) or isinstance(found, bool):
        return None
    return found if not isinstance(found, str) or _is_text(found) else None


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _read_leniently(data: bytes) -> Any:
    """Only for the id and the method of what is refused; of a key that stands twice neither value."""
    try:
        return json.loads(data.decode("utf-8", "replace"), object_pairs_hook=_unique, parse_int=_small)
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    return (
        {name: value for name, value in pairs if names.count(name) == 1 or name == "method"} if len(names) < 64 else {}
    )


def _small(digits: str) -> int | None:
    return int(digits) if len(digits) < 17 else None
