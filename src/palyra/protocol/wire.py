"""Values ↔ JSON: the only codec, used by every door. All keys of an outcome are always there, in one order.

A stored outcome leaves out budget and receipt: the journal knows them, and knows them as of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import orjson

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.model.outcome import ArtifactRef, BudgetView, Outcome, Status, Usage
from palyra.model.record import Recorded
from palyra.model.tool import ToolSpec

KEYS = (
    *("call_id", "run_id", "tool", "status", "success", "reason", "message", "hint", "operator_hint"),
    *("policy_stale", "output", "usage", "budget"),
    *("approval", "artifacts", "attestation", "receipt"),
)
_AS_THEY_ARE = tuple("call_id run_id tool success message hint operator_hint policy_stale output".split())
_LATER = {"operator_hint": None, "policy_stale": None}
"""What outcomes that were stored earlier lack."""
_IN_ORDER = itemgetter(*KEYS)


def outcome_json(outcome: Outcome) -> dict[str, Json]:
    stored = _stored_json(outcome)
    stored |= {"budget": outcome.budget.as_json(), "receipt": outcome.receipt}
    return dict(zip(KEYS, _IN_ORDER(stored), strict=True))


def _stored_json(outcome: Outcome) -> dict[str, Json]:
    return {
        "call_id": outcome.call_id,
        "run_id": outcome.run_id,
        "tool": outcome.tool,
        "status": outcome.status.value,
        "success": outcome.success,
        "reason": outcome.reason.value if outcome.reason else None,
        "message": outcome.message,
        "hint": outcome.hint,
        "operator_hint": outcome.operator_hint,
        "policy_stale": outcome.policy_stale,
        "output": outcome.output,
        "usage": outcome.usage.as_json(),
        "approval": outcome.approval,
        "artifacts": [ref.as_json() for ref in outcome.artifacts],
        "attestation": outcome.attestation,
    }


def outcome_bytes(outcome: Outcome) -> bytes:
    return orjson.dumps(outcome_json(outcome))


def parse_outcome(value: object) -> Outcome:
    """What `outcome_json` wrote, read back. ValueError for anything else."""
    if not isinstance(value, Mapping) or set(value) != set(KEYS):
        raise ValueError("this is not an outcome: its keys are not those of the contract")
    try:
        return Outcome(
            **{name: value[name] for name in _AS_THEY_ARE},
            status=Status(value["status"]),
            reason=Reason(value["reason"]) if value["reason"] is not None else None,
            usage=Usage(**value["usage"]),
            budget=BudgetView(**value["budget"]),
            approval=value["approval"],
            artifacts=tuple(ArtifactRef(**ref) for ref in value["artifacts"]),
            attestation=value["attestation"],
            receipt=value["receipt"],
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"this is not an outcome: {error}") from error


def stored_outcome_bytes(outcome: Outcome) -> bytes:
    return orjson.dumps(_stored_json(outcome))


def restore_outcome(data: bytes, recorded: Recorded) -> Outcome:
    """What `stored_outcome_bytes` kept, as of now. `Rejected` when it is no longer kept."""
    if not data:
        raise Rejected(
            Reason.CALL_ID_REUSED,
            "This call has ended, and its outcome is no longer kept.",
            "Send a fresh call_id to make the call again; palyra journal show CALL_ID shows what is left of it.",
        )
    kept: dict[str, Any] = orjson.loads(data)
    return parse_outcome(_LATER | kept | {"budget": recorded.budget.as_json(), "receipt": recorded.receipt.as_json()})


def tool_json(spec: ToolSpec) -> dict[str, Json]:
    return {
        "name": spec.name,
        "version": spec.version,
        "description": spec.description,
        "kind": spec.kind.value,
        "capabilities": sorted(c.value for c in spec.capabilities),
        "sensitive": spec.sensitive,
        "parallelism": spec.parallelism.value,
        "projection": spec.projection.value,
        "max_input_bytes": spec.max_input_bytes,
        "provenance": spec.provenance,
        "input_schema": spec.input_schema,
        "output_schema": spec.output_schema,
        "schema_sha256": spec.schema_sha256,
    }
