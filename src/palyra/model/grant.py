"""What policy said: allow, ask a person, or deny; always with the policies that decided.

Not here: asking Cedar (policy/decide), explaining (policy/explain).
"""

from __future__ import annotations

from typing import TypeAlias

from palyra.canon import Json
from palyra.errors import Reason
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    policies: tuple[str, ...]
    effect: str = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The same request with an approval would be allowed."""

    policies: tuple[str, ...]
    effect: str = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    reason: Reason
    policies: tuple[str, ...]
    message: str
    hint: str | None = None
    effect: str = "deny"


Decision: TypeAlias = Allow | Ask | Deny


def decision_json(decision: Decision | None) -> dict[str, Json]:
    """The `decision` object of an attestation; `none` when the call never reached policy."""
    if decision is None:
        return {"effect": "none", "policies": []}
    return {"effect": decision.effect, "policies": list(decision.policies)}
