"""From Cedar's answers to one of three outcomes: allow, ask, deny; or error, which is a denial too.

Rules: 1. an error anywhere in the answer, a principal or a tool nobody knows ⇒ error; 2. allowed ⇒ allow; 3. the
same request with an approval allowed ⇒ ask, so what can never be allowed is never put before a person; 4. else
deny, with the code of the first determining forbid by @id, and with what would have been enough: tier C, strict
egress or both. Questions about "what if" are answered by evaluating the changed request, never by guessing.

Not here: sentences and hints (decide), the long story (explain).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from palyra.errors import Reason
from palyra.policy.cedar import Answer, Compiled, evaluate
from palyra.policy.inputs import Scalar
from palyra.policy.request import Request
from palyra.values import dataclass

Effect = Literal["allow", "ask", "deny", "error"]
Remedy = Literal["", "tier C", "strict egress", "tier C and strict egress"]

_REMEDIES: tuple[tuple[Remedy, dict[str, Scalar]], ...] = (
    ("tier C", {"tier": "C"}),
    ("strict egress", {"egress": "strict"}),
    ("tier C and strict egress", {"tier": "C", "egress": "strict"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """What is known of one policy without evaluating it: its annotations and its place."""

    id: str
    effect: Literal["permit", "forbid"]
    code: Reason | None = None
    reason: str = ""
    """One sentence for whoever was refused (or allowed)."""
    hint: str = ""
    """What to do about it; `{program}` stands for the program's name, `{host}` for a host that was not granted,
    `{command}` for the command that takes the call's flags, `{allow}` and `{listed}` for the flags and the setting that
    programs need beside the leave to run code, `{read}` for the flag that would show what lies outside; each empty
    where none would help."""
    final: str = ""
    """Why a local policy may not replace it; empty when it may."""
    lifts: tuple[str, ...] = ()
    """The forbids that this permit is an exception of, by @id."""
    file: str = ""
    line: int = 0
    start: int = field(default=0, compare=False, repr=False)
    end: int = field(default=0, compare=False, repr=False)
    """Its text is `policies[file][start:end]`: several may begin on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    effect: Effect
    policies: tuple[str, ...] = ()
    code: Reason | None = None
    remedy: Remedy = ""
    error: str = ""


def judge(compiled: Compiled, index: Mapping[str, PolicyInfo], request: Request) -> Verdict:
    if not request.roles:
        return _error(f"{request.principal} is not a known principal")
    if not request.groups:
        return _error(f"{request.tool} is not a known tool")
    answer = evaluate(compiled, [request])[0]
    if answer.error:
        return _error(answer.error)
    if answer.allowed:
        return Verdict(effect="allow", policies=answer.policies)
    asked = _if_approved(compiled, request, answer)
    if asked is not None:
        # The forbids that an approval lifts are the policies that ask; without any, the permits that need one.
        return Verdict(effect="ask", policies=answer.policies or asked)
    code = index[answer.policies[0]].code if answer.policies else None
    return Verdict(
        effect="deny",
        policies=answer.policies,
        code=code or Reason.POLICY_DENIED,
        remedy=_remedy(compiled, request, answer),
    )


def _error(why: str) -> Verdict:
    return Verdict(effect="error", code=Reason.POLICY_ERROR, error=why)


def _could_lift(compiled: Compiled, answer: Answer, names: frozenset[str]) -> bool:
    """A forbid that looks at none of these attributes stays as it is, whatever their values: no need to ask."""
    if not answer.policies:
        return not names.isdisjoint(compiled.attributes)
    return not any(names.isdisjoint(compiled.looks_at[name]) for name in answer.policies)


def _if_approved(compiled: Compiled, request: Request, answer: Answer) -> tuple[str, ...] | None:
    """The permits that would allow this request once a person approved it."""
    if request.context["approved"] or not _could_lift(compiled, answer, frozenset({"approved"})):
        return None
    approved = evaluate(compiled, [request.with_context(approved=True)])[0]
    return approved.policies if approved.allowed else None


def _remedy(compiled: Compiled, request: Request, answer: Answer) -> Remedy:
    if not request.context["tier"] or not _could_lift(compiled, answer, frozenset({"tier", "egress"})):
        return ""
    tried = [(name, request.with_context(**changes)) for name, changes in _REMEDIES]
    tried = [(name, changed) for name, changed in tried if changed != request]
    if not tried:
        return ""
    answers = evaluate(compiled, [changed for _, changed in tried])
    return next((name for (name, _), said in zip(tried, answers, strict=True) if said.allowed), "")
