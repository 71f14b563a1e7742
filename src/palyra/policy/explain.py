"""Why a call was decided as it was, and the smallest change that would allow it.

Rules: nothing is advised that was not tried: each flag, tier, approval, posture and policy text is applied to the
request or the bundle, evaluated, and only named when the answer became allow (or ask, which is said). A policy
text is the narrowest: this principal, this tool, this program, as it would run now.

Not here: showing it (the doors), deciding (decide).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from palyra.canon import Json, digest
from palyra.errors import PalyraError
from palyra.model.grant import Allow, Ask, Decision, Deny
from palyra.policy.bundle import LOCAL, PolicyBundle, PolicyInfo, with_local
from palyra.policy.clauses import NearPermit, nearest_permits
from palyra.policy.decide import program_name, verdict_of
from palyra.policy.inputs import Scalar
from palyra.policy.request import Request
from palyra.values import dataclass

Kind = Literal["allowed", "ask", "forbid", "nothing_permits", "error"]


ChangeKind = Literal["approval", "tier", "egress", "flag", "setting", "posture", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that was tried and helped."""

    kind: ChangeKind
    text: str
    effect: str
    """What the answer became: allow or ask."""
    scope: str = ""
    """Of a policy: `call` when it is about exactly this input, `program` or `tool` when about every such call."""


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


Details = tuple[tuple[str, str], ...]


def explain(
    bundle: PolicyBundle,
    request: Request,
    decision: Decision,
    *,
    postures: Mapping[str, PolicyBundle] | None = None,
    tried: tuple[Change, ...] | None = None,
    details: Details = (),
) -> Explanation:
    """`postures` are bundles to compare with, by name; one that would allow the call is named as a change.

    `tried` are flags and settings that helped the call itself (engine/advice). Without them, for a call that is only
    known by its record, flags are tried on the request's facts; `details` are what guard said about it.
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
        changes=tuple(_changes(bundle, request, postures or {}, tried, details)) if wanting else (),
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
    yield from _policies(bundle, request)


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


def _policies(bundle: PolicyBundle, request: Request) -> Iterator[Change]:
    """Exactly this call first. The wider text only where the facts tell one call of a program from another: of what
    leads out of the workspace or to a host that is not granted they know that it does, not where."""
    context = request.context
    exact = least_privilege(bundle, request, exact=True) if context["input_sha256"] else ""
    if exact:
        yield Change(kind="policy", text=exact, effect="allow", scope="call")
    if not (context["outside_workspace"] or context["hosts_denied"]):
        wider = least_privilege(bundle, request)
        if wider:
            yield Change(kind="policy", text=wider, effect="allow", scope="program" if context["program"] else "tool")


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


def least_privilege(bundle: PolicyBundle, request: Request, *, exact: bool = False) -> str:
    """The narrowest policy text that makes this bundle allow this request, validated and evaluated; "" if none.

    `exact`: this input and no other; else every call of this program (or tool) in the same sandbox.
    """
    verdict = verdict_of(bundle, request)
    forbids = [name for name in verdict.policies if bundle.index[name].effect == "forbid"]
    if verdict.effect not in ("deny", "ask") or any(bundle.index[name].final for name in forbids):
        return ""
    conditions = tuple(_conditions(request, exact=exact))
    softened = [_softened(bundle, bundle.index[name], request, conditions) for name in forbids]
    permit = _permit(request, conditions)
    for texts in ([permit], softened, [*softened, permit]):
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


def _permit(request: Request, conditions: tuple[str, ...]) -> str:
    uid = request.principal_uid
    words = f"{request.context['effective_program'] or request.tool}-{uid['id']}"
    slug = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[:50]
    # Two suggestions for one program must not bear one @id: a bundle takes each once.
    mark = digest({"who": uid, "tool": request.tool, "when": list(conditions)})[:8]
    return (
        f'@id("local.allow-{slug}-{mark}")\n'
        f"permit (\n"
        f"  principal == {uid['type']}::{quote(uid['id'])},\n"
        f"  action == Action::{quote(request.action)},\n"
        f"  resource == Tool::{quote(request.tool)}\n"
        f")" + (f"\nwhen {{ {' && '.join(conditions)} }}" if conditions else "") + ";\n"
    )


def _softened(bundle: PolicyBundle, policy: PolicyInfo, request: Request, conditions: tuple[str, ...]) -> str:
    """The forbid as it stands, with one more exception: exactly this principal, tool and program."""
    uid = request.principal_uid
    who = [f"principal == {uid['type']}::{quote(uid['id'])}", f"resource == Tool::{quote(request.tool)}"]
    exception = " && ".join([*who, *conditions])
    return bundle.text_of(policy.id)[:-1] + f"\nunless {{ {exception} }};\n"


def _conditions(request: Request, *, exact: bool) -> Iterator[str]:
    for name in ("effective_program", "tier", "egress", *(("input_sha256",) if exact else ())):
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
