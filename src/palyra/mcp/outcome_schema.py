"""The JSON Schema of what a tool returns over MCP: the outcome of the contract, with the tool's own output inside.

Pure. `output` is the tool's own schema when it ran, empty when nothing ran, or a projection of what was too large.
"""

from __future__ import annotations

from palyra.canon import Json
from palyra.errors import Reason
from palyra.model.outcome import Status
from palyra.model.tool import ToolSpec
from palyra.protocol.wire import KEYS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTHING: dict[str, Json] = {"type": "object", "maxProperties": 0, "description": "Nothing ran."}
_PROJECTED: dict[str, Json] = {
    "type": "object",
    "required": ["projection"],
    "description": "Too large to show whole: the rest are artifacts, read with palyra_artifact_read.",
}
_OBJECT: dict[str, Json] = {"type": "object"}
_MAYBE_OBJECT: dict[str, Json] = {"type": ["object", "null"]}
_MAYBE_TEXT: dict[str, Json] = {"type": ["string", "null"]}


def outcome_schema(spec: ToolSpec) -> dict[str, Json]:
    return {
        "$schema": DIALECT,
        "type": "object",
        "required": list(KEYS),
        "properties": {
            "call_id": {"type": "string"},
            "run_id": {"type": "string"},
            "tool": {"type": "string"},
            "status": {"enum": [status.value for status in Status]},
            "success": {"type": "boolean"},
            "reason": {"enum": [*(reason.value for reason in Reason), None]},
            "message": _MAYBE_TEXT,
            "hint": _MAYBE_TEXT | {"description": "What would make it work: a flag, a setting or a policy."},
            "operator_hint": _MAYBE_TEXT | {"description": "What only an operator can do: a command that allows it."},
            "policy_stale": _MAYBE_TEXT | {"description": "The policy files need repair; older ones are in force."},
            "output": {"anyOf": [_embedded(spec), _NOTHING, _PROJECTED]},
            "usage": _OBJECT,
            "budget": _OBJECT,
            "approval": _MAYBE_OBJECT | {"description": "Which approval it waits for, and where it is decided."},
            "artifacts": {"type": "array", "items": _OBJECT},
            "attestation": _OBJECT | {"description": "Which statement was signed; the whole of it is in _meta."},
            "receipt": _MAYBE_OBJECT,
        },
    }


def _embedded(spec: ToolSpec) -> dict[str, Json]:
    """A schema within a schema: one with references of its own becomes a resource, so that they go on meaning it."""
    schema = {name: value for name, value in spec.output_schema.items() if name != "$schema"}
    if "$defs" in schema and "$id" not in schema:
        schema["$id"] = f"urn:palyra:output:{spec.schema_sha256}"
    return schema
