"""Decide a journaled call again, from the values that were kept beside its entry. Pure: nothing is looked at or run.

Rules: the request that was put before policy is kept whole, so the same bundle must give the same answer, and another
bundle says what it would have said. A request out of which redaction took something cannot be decided exactly: it is
decided as it is kept, and the answer says so. A call that never reached policy has nothing to replay.

Not here: finding calls and bundles (wiring/history), showing them (the doors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import orjson

from palyra.canon import Json, digest
from palyra.errors import Rejected
from palyra.model.grant import Decision
from palyra.policy.bundle import PolicyBundle
from palyra.policy.decide import decide
from palyra.policy.inputs import read_input
from palyra.policy.request import Request, parse_request
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """What was put before policy, and what it said then."""

    request: Request
    details: tuple[tuple[str, str], ...]
    """The guard's sentences by reason code."""
    effect: str
    policies: tuple[str, ...]
    policy_sha256: str
    exact: bool
    """False when redaction changed the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    recorded: RecordedDecision
    decision: Decision

    @property
    def flips(self) -> bool:
        """The outcome would be another: allow, ask or deny."""
        return self.decision.effect != self.recorded.effect

    @property
    def same(self) -> bool:
        """The same outcome by the same policies, as the same bundle must give."""
        return not self.flips and self.decision.policies == self.recorded.policies


def read_decision(details: bytes) -> RecordedDecision | None:
    """Of a call's kept details; None when it never reached policy. Raises ValueError for what is no record."""
    try:
        value = orjson.loads(details) if details else {}
        if not isinstance(value, dict) or value.get("request") is None:
            return None
        said, arguments = value["decision"], value.get("input") or {}
        sentences = (value.get("facts") or {}).get("details", ())
        seen = read_input(arguments, str(value.get("workspace", "")))
        return RecordedDecision(
            request=replace(parse_request(value["request"]), input=seen),
            details=tuple((str(code), str(text)) for code, text in sentences),
            effect=str(said["effect"]),
            policies=tuple(map(str, said["policies"])),
            policy_sha256=str(value["policy_sha256"]),
            exact=not value.get("request_redacted", False) and digest(arguments) == value["input_sha256"],
        )
    except (Rejected, KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"the record of this decision cannot be read: {error}") from error


def replay_decision(recorded: RecordedDecision, bundle: PolicyBundle) -> Replayed:
    """What this bundle says to the recorded request."""
    return Replayed(recorded=recorded, decision=decide(bundle, recorded.request, details=recorded.details))


def mismatch(recorded: RecordedDecision, bundle: PolicyBundle | None) -> str:
    """Empty when the bundle that decided decides the same again; else what is wrong. For an audit's --replay."""
    if bundle is None:
        return f"the policies {recorded.policy_sha256[:12]} that decided it are not kept"
    if bundle.digest != recorded.policy_sha256:
        return f"it was decided by the policies {recorded.policy_sha256[:12]}, not by {bundle.digest[:12]}"
    replayed = replay_decision(recorded, bundle)
    if replayed.same or not recorded.exact:
        return ""
    said, now = _said(recorded.effect, recorded.policies), _said(replayed.decision.effect, replayed.decision.policies)
    return f"its record says {said}, and its facts decide {now}"


def _said(effect: str, policies: tuple[str, ...]) -> str:
    return f"{effect} ({', '.join(policies) or 'no policy'})"


def flip_json(replayed: Replayed) -> dict[str, Json]:
    """Then and now, for whoever lists flips."""
    then: Mapping[str, Json] = {
        "effect": replayed.recorded.effect,
        "policies": list(replayed.recorded.policies),
        "policy_sha256": replayed.recorded.policy_sha256,
    }
    now = replayed.decision
    reason = getattr(now, "reason", None)
    return {
        "was": dict(then),
        "now": {"effect": now.effect, "policies": list(now.policies), "reason": reason.value if reason else None},
        "exact": replayed.recorded.exact,
    }
