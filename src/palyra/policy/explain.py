"""Why a call was decided as it was, and the smallest change that would allow it.

Rules: nothing is advised that was not tried: each flag, tier, approval, posture and policy text is applied to the
request or the bundle, evaluated, and only named when the answer became allow (or ask, which is said). A policy
text is the narrowest: this principal, this tool, this program, as it would run now.

Not here: showing it (the doors), deciding (decide).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from palyra.canon import Json
from palyra.errors import PalyraError
from palyra.model.grant import Allow, Ask, Decision, Deny
from palyra.policy.bundle import LOCAL, PolicyBundle, PolicyInfo, with_local
from palyra.policy.clauses import NearPermit, nearest_permits
from palyra.policy.decide import program_name, verdict_of
from palyra.policy.request import Request, Scalar

Kind = Literal["allowed", "ask", "forbid", "nothing_permits", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that was tried and helped."""

    kind: Literal["approval", "tier", "egress", "flag", "posture", "policy"]
    text: str
    effect: str
    """What the answer became: allow or ask."""


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
    """Smallest first."""
    error: str = ""


def explain(
    bundle: PolicyBundle, request: Request, decision: Decision, *, postures: Mapping[str, PolicyBundle] | None = None
) -> Explanation:
    """`postures` are bundles to compare with, by name; one that would allow the call is named as a change."""
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
        changes=tuple(_changes(bundle, request, postures or {})) if wanting else (),
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


def _changes(bundle: PolicyBundle, request: Request, postures: Mapping[str, PolicyBundle]) -> Iterator[Change]:
    helped: list[dict[str, Scalar]] = []
    for kind, text, values in _candidates(request):
        changed = request.with_context(**values)
        # What contains a change that helped already is no smaller one.
        if changed == request or any(less.items() <= values.items() for less in helped):
            continue
        if verdict_of(bundle, changed).effect == "allow":
            helped.append(values)
            yield Change(kind=kind, text=text, effect="allow")
    for name, other in postures.items():
        effect = verdict_of(other, request).effect
        if effect in ("allow", "ask") and other.digest != bundle.digest:
            yield Change(kind="posture", text=f'posture = "{name}"', effect=effect)
    policy = least_privilege(bundle, request)
    if policy:
        yield Change(kind="policy", text=policy, effect="allow")


_Candidate = tuple[Literal["approval", "tier", "egress", "flag"], str, dict[str, Scalar]]


def _candidates(request: Request) -> Iterator[_Candidate]:
    """Single changes before pairs, what the caller can do before what only the operator can."""
    yield "approval", "an approval by a person", {"approved": True}
    if not request.context["tier"]:
        return
    yield "tier", 'tier C (leave out --tier, or set tier = "auto")', {"tier": "C"}
    yield "egress", "strict egress (--egress strict)", {"egress": "strict"}
    yield "egress", "tier C with strict egress", {"tier": "C", "egress": "strict"}
    allow = f"--allow {program_name(request)}"
    listed: dict[str, Scalar] = {"granted": True, "listed": True}
    # The flag also lists interpreters, as guard/command does; what merely runs code still has to be listed itself.
    code: dict[str, Scalar] = {"granted_interpreters": True}
    if request.context["interpreter"]:
        code["listed"] = True
    mode = request.context["egress"]
    yield "flag", allow, listed
    yield "flag", "--allow-interpreters", code
    yield "flag", f"--allow-interpreters {allow}", code | listed
    yield "flag", "--allow-host HOST, for each host it names", {"hosts_denied": 0}
    yield "flag", f"--egress {mode}", {"granted_egress": True}
    yield "flag", f"--tier {str(request.context['tier']).lower()}", {"granted_tier": True}


def least_privilege(bundle: PolicyBundle, request: Request) -> str:
    """The narrowest policy text that makes this bundle allow this request, validated and evaluated; "" if none."""
    verdict = verdict_of(bundle, request)
    forbids = [name for name in verdict.policies if bundle.index[name].effect == "forbid"]
    if verdict.effect not in ("deny", "ask") or any(bundle.index[name].final for name in forbids):
        return ""
    softened = [_softened(bundle, bundle.index[name], request) for name in forbids]
    for texts in ([_permit(request)], softened, [*softened, _permit(request)]):
        text = "\n".join(texts)
        if text and _would_allow(bundle, request, text):
            return text
    return ""


def _would_allow(bundle: PolicyBundle, request: Request, text: str) -> bool:
    name = f"suggested-{len(bundle.policies)}.cedar"
    try:
        return verdict_of(with_local(bundle, {name: text}), request).effect == "allow"
    except PalyraError:
        return False


def _permit(request: Request) -> str:
    uid = request.principal_uid
    slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{request.tool}-{request.context['effective_program']}").strip("-")[:60]
    conditions = " && ".join(_conditions(request))
    return (
        f'@id("local.allow-{slug}")\n'
        f"permit (\n"
        f"  principal == {uid['type']}::{quote(uid['id'])},\n"
        f"  action == Action::{quote(request.action)},\n"
        f"  resource == Tool::{quote(request.tool)}\n"
        f")" + (f"\nwhen {{ {conditions} }}" if conditions else "") + ";\n"
    )


def _softened(bundle: PolicyBundle, policy: PolicyInfo, request: Request) -> str:
    """The forbid as it stands, with one more exception: exactly this principal, tool and program."""
    uid = request.principal_uid
    who = [f"principal == {uid['type']}::{quote(uid['id'])}", f"resource == Tool::{quote(request.tool)}"]
    exception = " && ".join([*who, *_conditions(request)])
    return bundle.text_of(policy.id)[:-1] + f"\nunless {{ {exception} }};\n"


def _conditions(request: Request) -> Iterator[str]:
    for name in ("effective_program", "tier", "egress"):
        value = request.context[name]
        if isinstance(value, str) and value:
            yield f"context.{name} == {quote(value)}"


def quote(text: str) -> str:
    """A Cedar string literal; all but plain ASCII is written as \\u{…}, so nothing in it can end the string."""
    return (
        '"'
        + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\u{{{ord(c):x}}}" for c in text)
        + '"'
    )


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
        "changes": [{"kind": c.kind, "text": c.text, "effect": c.effect} for c in explanation.changes],
        "request": explanation.request.as_json(),
    }


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
