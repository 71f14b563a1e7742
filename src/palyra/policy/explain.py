"""Why a call was decided as it was, and the smallest change that would allow it.

Rules: nothing is advised that was not tried: each exception, flag, tier, approval and posture is applied to the
request or the bundle, evaluated, and only named when the answer became allow (or ask, which is said).

Not here: showing it (the doors), deciding (decide).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from palyra.canon import Json
from palyra.model.grant import Allow, Ask, Decision, Deny
from palyra.policy.bundle import LOCAL, PolicyBundle, PolicyInfo
from palyra.policy.clauses import NearPermit, nearest_permits
from palyra.policy.decide import program_name, verdict_of
from palyra.policy.exceptions import scopes_for
from palyra.policy.inputs import Scalar
from palyra.policy.request import Request
from palyra.values import dataclass

Kind = Literal["allowed", "ask", "forbid", "nothing_permits", "error"]


ChangeKind = Literal["approval", "tier", "egress", "flag", "setting", "posture", "exception"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that was tried and helped."""

    kind: ChangeKind
    text: str
    effect: str
    """What the answer became: allow or ask."""
    scope: str = ""
    """Of an exception: how much it covers (exceptions.SCOPES)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    kind: Kind
    decision: Decision
    request: Request
    bundle: str
    digest: str
    determining: tuple[PolicyInfo, ...] = ()
    nearest: tuple[NearPermit, ...] = ()
    """Only where nothing permits."""
    changes: tuple[Change, ...] = ()
    """Exceptions first, then the smallest first."""
    error: str = ""


Details = tuple[tuple[str, str], ...]


def explain(
    bundle: PolicyBundle,
    request: Request,
    decision: Decision,
    *,
    postures: Mapping[str, PolicyBundle] | None = None,
    tried: tuple[Change, ...] | None = None,
    details: Details = (),
    call_id: str = "",
    then: frozenset[str] | None = None,
) -> Explanation:
    """`postures` are bundles to compare with, by name; one that would allow the call is named as a change.

    `tried` are flags and settings that helped the call itself (engine/advice). Without them, for a call that is only
    known by its record, flags are tried on the request's facts; `details` are what guard said about it. `call_id`: of a
    call that was refused, by the policies `then`; an operator can make an exception for it.
    """
    kind = _kind(decision, error=verdict_of(bundle, request).error)
    wanting = kind in ("ask", "forbid", "nothing_permits")
    return Explanation(
        kind=kind,
        decision=decision,
        request=request,
        bundle=bundle.name,
        digest=bundle.digest,
        determining=tuple(bundle.index[name] for name in decision.policies if name in bundle.index),
        nearest=nearest_permits(bundle, request) if kind == "nothing_permits" else (),
        changes=(
            *(_exceptions(bundle, request, call_id, then) if wanting and call_id else ()),
            *(_changes(bundle, request, postures or {}, tried, details) if wanting else ()),
        ),
        error=verdict_of(bundle, request).error,
    )


def _kind(decision: Decision, *, error: str) -> Kind:
    match decision:
        case Allow():
            return "allowed"
        case Ask():
            return "ask"
        case Deny(policies=policies):
            return "error" if error else "forbid" if policies else "nothing_permits"


def _changes(
    bundle: PolicyBundle,
    request: Request,
    postures: Mapping[str, PolicyBundle],
    tried: tuple[Change, ...] | None,
    details: Details,
) -> Iterator[Change]:
    approval = Change(kind="approval", text="an approval by a person", effect="allow")
    if verdict_of(bundle, request.with_context(approved=True)).effect == "allow":
        yield approval
    yield from _flags(bundle, request, details) if tried is None else tried
    for name, other in postures.items():
        effect = verdict_of(other, request).effect
        if effect in ("allow", "ask") and other.digest != bundle.digest:
            yield Change(kind="posture", text=f'posture = "{name}"', effect=effect)


def _flags(bundle: PolicyBundle, request: Request, details: Details) -> Iterator[Change]:
    helped: list[dict[str, Scalar]] = []
    for kind, text, values in _candidates(request, details):
        changed = request.with_context(**values)
        # What contains a change that helped already is no smaller one.
        if changed == request or any(less.items() <= values.items() for less in helped):
            continue
        if verdict_of(bundle, changed).effect == "allow":
            helped.append(values)
            yield Change(kind=kind, text=text, effect="allow")


def _exceptions(bundle: PolicyBundle, request: Request, call_id: str, then: frozenset[str] | None) -> Iterator[Change]:
    """The one-line choices, the narrowest first."""
    for scope in scopes_for(bundle, request, then=then):
        text = f"palyra policy allow {call_id} --for {scope}"
        yield Change(kind="exception", text=text, effect="allow", scope=scope)


_Candidate = tuple[Literal["tier", "egress", "flag"], str, dict[str, Scalar]]


def _candidates(request: Request, details: Details) -> Iterator[_Candidate]:
    """Single changes before pairs, what the caller can do before what only the operator can."""
    if not request.context["tier"]:
        return
    yield "tier", 'tier C (leave out --tier, or set tier = "auto")', {"tier": "C"}
    yield "egress", "strict egress (--egress strict)", {"egress": "strict"}
    yield "egress", "tier C with strict egress", {"tier": "C", "egress": "strict"}
    allow = f"--allow {program_name(request, details)}"
    listed: dict[str, Scalar] = {"granted": True, "listed": True}
    # The flag also lists interpreters, as guard/command does; what merely runs code still has to be listed itself.
    code: dict[str, Scalar] = {"granted_interpreters": True}
    if request.context["interpreter"] and not request.context["own_list"]:
        code["listed"] = True
    mode = request.context["egress"]
    yield "flag", allow, listed
    yield "flag", "--allow-interpreters", code
    yield "flag", f"--allow-interpreters {allow}", code | listed
    yield "flag", "--allow-host HOST, for each host it names", {"hosts_denied": 0}
    yield "flag", f"--egress {mode}", {"granted_egress": True}
    yield "flag", f"--tier {str(request.context['tier']).lower()}", {"granted_tier": True}


def explanation_json(explanation: Explanation) -> dict[str, Json]:
    decision = explanation.decision
    denied = isinstance(decision, Deny)
    return {
        "kind": explanation.kind,
        "effect": decision.effect,
        "reason": decision.reason.value if isinstance(decision, Deny) else None,
        "message": decision.message if isinstance(decision, Deny) else None,
        "hint": decision.hint if isinstance(decision, Deny) else None,
        "error": explanation.error or None if denied else None,
        "bundle": explanation.bundle,
        "policy_sha256": explanation.digest,
        "policies": [_policy_json(info) for info in explanation.determining],
        "nearest": [_policy_json(near.policy) | {"failed": list(near.failed)} for near in explanation.nearest],
        "changes": [change_json(change) for change in explanation.changes],
        "request": explanation.request.as_json() | {"context": dict(sorted(explanation.request.context.items()))},
    }


def change_json(change: Change) -> dict[str, Json]:
    return {"kind": change.kind, "text": change.text, "effect": change.effect, "scope": change.scope or None}


def _policy_json(info: PolicyInfo) -> dict[str, Json]:
    return {
        "id": info.id,
        "effect": info.effect,
        "code": info.code.value if info.code else None,
        "reason": info.reason or None,
        "hint": info.hint or None,
        "file": info.file,
        "line": info.line,
        "local": info.file.startswith(LOCAL),
    }
