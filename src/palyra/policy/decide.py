"""A bundle and a request → allow, ask or deny, with the sentence and the hint a caller sees.

Rules: the decision is `verdict.judge`'s, remembered by exactly what the bundle's policies can see; a denial's sentence
is the guard's own where it has one for that code (it knows which argument, which host), else the policy's @reason;
its hint is what was tried and found enough (tier C, strict egress), else the policy's @hint.

Not here: evaluation (cedar), the order of outcomes (verdict).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from palyra.errors import Reason
from palyra.late import late
from palyra.model.grant import Allow, Ask, Decision, Deny
from palyra.policy.bundle import PolicyBundle
from palyra.policy.request import Request
from palyra.policy.verdict import Verdict, judge

MISSING_EXECUTABLE = "guard.25-executable-missing"
"""The policy of an allowed program that is not there: first among a denial's policies, it means exit code 127."""

RUN_TOOL = "palyra.process.run"
"""What `palyra run` is a shorter way to; every other tool is called with `palyra call`, which has the same flags."""
_REMEDY_HINTS = {
    "tier C": 'It would be allowed in tier C: leave out --tier, or set tier = "auto".',
    "strict egress": "It would be allowed with strict egress: use --egress strict or that egress_enforcement_mode.",
    "tier C and strict egress": "It would be allowed in tier C with strict egress: leave out --tier and --egress.",
}
_NO_PERMIT_HINT = (
    "palyra policy explain CALL_ID shows what would allow it: a flag, an approval or an exception; "
    "the posture is {posture}."
)
_MAX_UNLISTED = 3
_READING = ", or let programs read one more path: palyra run --read PATH"
_PLAIN_HOST = late(r"[A-Za-z0-9._-]{1,253}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")
_PLAIN_NAME = late(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def decide(bundle: PolicyBundle, request: Request, *, details: Collection[tuple[str, str]] = ()) -> Decision:
    """`details` are `Facts.details`: sentences by reason code."""
    verdict = verdict_of(bundle, request)
    match verdict.effect:
        case "allow":
            return Allow(policies=verdict.policies)
        case "ask":
            return Ask(policies=verdict.policies)
        case "deny":
            return _deny(bundle, request, verdict, details)
        case _:
            return Deny(
                reason=Reason.POLICY_ERROR,
                policies=(),
                message=f"Policy could not be evaluated, so the call is refused: {verdict.error}.",
                hint="Fix the policy it names; palyra policy explain CALL_ID shows the request it failed on.",
            )


_RANK = ("allow", "ask", "deny")


def decide_each(
    bundle: PolicyBundle, request: Request, *, details: Collection[tuple[str, str]] = ()
) -> tuple[Request, Decision]:
    """The strictest answer about the programs that a call starts side by side, and the request it answers. A policy
    sees one effective program: `find -exec ls ; -exec rm ;` was `ls` to an operator's forbid of `rm`. Guard names them
    in `details`, under `end`."""
    others = [name for code, name in details if code == "end" and name != request.context["effective_program"]]
    requests = (request, *(request.with_context(effective_program=end) for end in others))
    answers = [(each, decide(bundle, each, details=details)) for each in requests]
    return max(answers, key=lambda answer: _RANK.index(answer[1].effect))


def verdict_of(bundle: PolicyBundle, request: Request) -> Verdict:
    key = bundle.cedar.key(request)
    known = bundle.verdicts.get(key)
    if known is None:
        known = judge(bundle.cedar, bundle.index, request)
        if known.effect != "error":
            bundle.verdicts.put(key, known)
    return known


def _deny(bundle: PolicyBundle, request: Request, verdict: Verdict, details: Collection[tuple[str, str]]) -> Deny:
    first = bundle.index[verdict.policies[0]] if verdict.policies else None
    reason = verdict.code or Reason.POLICY_DENIED
    said = next((sentence for code, sentence in details if code == reason), "") or (first.reason if first else "")
    hint = _REMEDY_HINTS.get(verdict.remedy, "")
    if not hint:
        hint = first.hint if first else _NO_PERMIT_HINT.format(posture=bundle.name)
    return Deny(
        reason=reason,
        policies=verdict.policies,
        message=said or _plain(request, forbidden=first is not None),
        hint=_filled(hint, request, details) or None,
    )


def _filled(hint: str, request: Request, details: Iterable[tuple[str, str]]) -> str:
    command = "palyra run" if request.tool == RUN_TOOL else "palyra call"
    named = {"{program}": program_name(request, details), "{host}": _host_name(details), "{command}": command}
    unlisted = [text for code, text in details if code == "unlisted" and _PLAIN_NAME.fullmatch(text)][:_MAX_UNLISTED]
    named["{read}"] = _READING if any(code == "read" for code, _ in details) else ""
    named["{allow}"] = "".join(f" --allow {name}" for name in unlisted)
    named["{listed}"] = f" and {', '.join(unlisted)} in allowed_executables" if unlisted else ""
    for mark, name in named.items():
        hint = hint.replace(mark, name)
    return hint


def _host_name(details: Iterable[tuple[str, str]]) -> str:
    """What `--allow-host` would have to name; guard says it under `host`."""
    name = next((text for code, text in details if code == "host"), "")
    return name if _PLAIN_HOST.fullmatch(name) else "HOST"


def _plain(request: Request, *, forbidden: bool) -> str:
    what = f"{request.tool} for {request.principal}"
    return f"A policy forbids {what}." if forbidden else f"No policy permits {what}."


def program_name(request: Request, details: Iterable[tuple[str, str]]) -> str:
    """What a flag would have to name; guard says it under `program`. Anything but a plain name could carry terminal
    codes into a hint."""
    told = next((text for code, text in details if code == "program"), "")
    name = told or str(request.context["effective_program"] or request.context["program"])
    return name if _PLAIN_NAME.fullmatch(name) else "NAME"
