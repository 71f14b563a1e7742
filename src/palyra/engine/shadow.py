"""What a candidate bundle would have decided, beside the one that decides. It changes nothing but the record.

Rules: the live decision stands whatever the candidate says or fails to say; only a difference is recorded, and a
candidate that cannot be used is one. Not here: loading the candidate (policy/store).
"""

from __future__ import annotations

from palyra.canon import Json
from palyra.engine.ports import Policies
from palyra.errors import ConfigError
from palyra.model.grant import Decision, Deny
from palyra.policy.decide import decide
from palyra.policy.request import Request


def compare_candidate(candidate: Policies, request: Request, live: Decision) -> dict[str, Json] | None:
    """None when both agree on effect and reason."""
    try:
        bundle = candidate.current()
    except ConfigError as error:
        return {"error": error.detail[:500]}
    said = decide(bundle, request)
    if said.effect == live.effect and _reason(said) == _reason(live):
        return None
    return {
        "policy_sha256": bundle.digest,
        "effect": said.effect,
        "reason": _reason(said),
        "policies": list(said.policies),
    }


def _reason(decision: Decision) -> str | None:
    return decision.reason.value if isinstance(decision, Deny) else None
