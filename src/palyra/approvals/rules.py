"""What an approval binds, how far it goes, when it ends, and who may decide. Pure: values in, values or `Rejected` out.

Rules: 1. it binds the whole plan (program and its digest, argv, cwd, environment, mounts, network grant, limits), the
input, the principal, the bundle and the policies that asked; a change in any of these needs a new approval. 2. A
pattern opens the program's arguments and nothing else, word by word. 3. `once` is one call, `run` the run that asked,
`until` a time. 4. An agent never decides, and nobody decides on a call of their own, but for a person at the call's
terminal. 5. A request is decided once and in time. 6. A yes can be taken back, and a no too: then the same call asks
again, it is not let through; who asked takes back only a no of their own.

Not here: rows and entries (store), when a call asks (engine/approval).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import orjson

from palyra.approvals.patterns import check_pattern, matches
from palyra.canon import Json, digest
from palyra.errors import Reason, Rejected
from palyra.model.approval import Approval, ApprovalState, Question, Scope
from palyra.values import dataclass

MAX_UNTIL_MS = 30 * 24 * 3600 * 1000
MAX_NOTE_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    binding: str
    frame: str
    likeness: str


def bind(
    *,
    principal: str,
    tool: str,
    input_sha256: str,
    plan: Mapping[str, Json],
    policy_sha256: str | None,
    policies: Collection[str],
) -> Bound:
    """1 — `plan` is the plan's own JSON, all of it: whatever a backend adds to it is bound too."""
    asked = {"principal": principal, "tool": tool, "policy_sha256": policy_sha256, "policies": sorted(policies)}
    framed = {name: value for name, value in plan.items() if name != "argv"}
    frame = digest({**asked, "plan": framed})
    return Bound(
        binding=digest({"frame": frame, "argv": plan.get("argv"), "input_sha256": input_sha256}),
        frame=frame if "argv" in plan else "",
        likeness=digest({"principal": principal, "tool": tool, "input_sha256": input_sha256}),
    )


def covers(approval: Approval, question: Question, *, now_unix_ms: int) -> bool:
    """Whether this approval, as it stands, lets that call through."""
    if approval.state is not ApprovalState.APPROVED or approval.scope is None:
        return False
    if (approval.principal, approval.tool) != (question.principal, question.tool):
        return False
    if approval.valid_until_unix_ms is None or now_unix_ms >= approval.valid_until_unix_ms:
        return False
    if approval.scope is Scope.ONCE and approval.uses:
        return False
    if approval.scope is Scope.RUN and approval.run_id != question.run_id:
        return False
    if not approval.pattern:
        return approval.binding == question.binding
    fits = bool(approval.frame) and approval.frame == question.frame
    return fits and matches(tuple(orjson.loads(approval.pattern)), question.argv)


def is_overdue(approval: Approval, *, now_unix_ms: int) -> bool:
    return approval.state is ApprovalState.PENDING and now_unix_ms >= approval.expires_unix_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an operator says to a request."""

    approved: bool
    by: str
    """user:NAME."""
    logins: tuple[str, ...] = ()
    """Whose credential says it, where that is somebody else's name: `--as` does not change who one is."""
    scope: Scope = Scope.ONCE
    until_unix_ms: int | None = None
    pattern: tuple[str, ...] = ()
    note: str = ""
    at_terminal: bool = False
    """The person who made the call, at its terminal: the one exception to rule 4."""


def decide(approval: Approval, verdict: Verdict, *, now_unix_ms: int, grant_ms: int) -> Approval:
    """The approval as decided, without its seal; `Rejected` when it may not be."""
    _check_decider(approval, verdict)
    check_pending(approval, now_unix_ms=now_unix_ms)
    if len(verdict.note) > MAX_NOTE_CHARS:
        raise Rejected(Reason.BAD_ARGUMENTS, f"A reason has at most {MAX_NOTE_CHARS} characters.")
    decided = replace(
        approval,
        decided_unix_ms=now_unix_ms,
        decided_by=verdict.by,
        self_approved=int(verdict.at_terminal),
        note=verdict.note,
    )
    if not verdict.approved:
        return replace(decided, state=ApprovalState.DENIED)
    return replace(
        decided,
        state=ApprovalState.APPROVED,
        scope=verdict.scope,
        valid_until_unix_ms=_valid_until(verdict, now_unix_ms, grant_ms),
        pattern=_pattern(approval, verdict),
    )


_AFTERWARDS = {
    ApprovalState.APPROVED: "palyra approvals revoke {id} takes the grant back.",
    ApprovalState.DENIED: "palyra approvals revoke {id} takes the no back; then the same call asks again.",
}


def check_pending(approval: Approval, *, now_unix_ms: int) -> None:
    """5"""
    if is_overdue(approval, now_unix_ms=now_unix_ms):
        raise Rejected(Reason.APPROVAL_TIMEOUT, "The request has expired.", "The caller repeats the call to ask again.")
    if approval.state is not ApprovalState.PENDING:
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"The request is already {approval.state.value}{by}; a request is decided only once.",
            _AFTERWARDS.get(approval.state, "The caller repeats the call to ask again.").format(
                id=approval.approval_id
            ),
        )


def _check_decider(approval: Approval, verdict: Verdict) -> None:
    """4"""
    for name in (verdict.by, *verdict.logins):
        _check_person(name)
    own = approval.principal in (verdict.by, *verdict.logins)
    if verdict.at_terminal:
        if approval.principal != verdict.by:
            raise Rejected(Reason.CAPABILITY_DENIED, "At a terminal, only the person who made the call can confirm it.")
    elif own:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            f"{approval.principal} asked for this, and nobody may decide on their own call.",
            "Repeat the call at a terminal to confirm it there, or let another operator decide.",
        )


def _check_person(name: str) -> None:
    if not name.startswith("user:"):
        raise Rejected(
            Reason.CAPABILITY_DENIED, "An agent can never decide on approvals.", "Decide as a person: --as user:NAME."
        )


def _valid_until(verdict: Verdict, now_unix_ms: int, grant_ms: int) -> int:
    if verdict.scope is not Scope.UNTIL:
        if verdict.until_unix_ms is not None:
            raise Rejected(Reason.BAD_ARGUMENTS, "Only the scope `until` has a time.", "Leave the time out.")
        return now_unix_ms + grant_ms
    until = verdict.until_unix_ms
    if until is None or not now_unix_ms < until <= now_unix_ms + MAX_UNTIL_MS:
        raise Rejected(
            Reason.BAD_ARGUMENTS, "A grant must end in the future, within 30 days.", "Give the seconds with --for."
        )
    return until


def _pattern(approval: Approval, verdict: Verdict) -> str:
    if not verdict.pattern:
        return ""
    if not approval.frame:
        raise Rejected(Reason.BAD_ARGUMENTS, f"{approval.tool} has no arguments that a pattern could open.")
    check_pattern(verdict.pattern, approval.program)
    return orjson.dumps(list(verdict.pattern)).decode()


def expire(approval: Approval) -> Approval:
    return replace(approval, state=ApprovalState.EXPIRED)


def holds_denied(approval: Approval, *, now_unix_ms: int) -> bool:
    """A no holds as long as the question would have: who asks on must not wear people down."""
    return approval.state is ApprovalState.DENIED and now_unix_ms < approval.expires_unix_ms


def revoke(approval: Approval, *, by: str, logins: Collection[str] = (), now_unix_ms: int) -> Approval:
    """6"""
    _check_person(by)
    if approval.state is ApprovalState.DENIED:
        _check_takes_back(approval, by, logins, now_unix_ms)
    elif approval.state is not ApprovalState.APPROVED:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"It is {approval.state.value}: only a decision that is in force can be revoked.",
            "palyra approvals grants lists what was allowed, palyra approvals list --state denied what was not.",
        )
    return replace(approval, state=ApprovalState.REVOKED)


def _check_takes_back(approval: Approval, by: str, logins: Collection[str], now_unix_ms: int) -> None:
    if not holds_denied(approval, now_unix_ms=now_unix_ms):
        raise Rejected(Reason.BAD_ARGUMENTS, "This no is over.", "The caller repeats the call to ask again.")
    if approval.principal in (by, *logins) and approval.decided_by != approval.principal:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            f"{approval.principal} asked for this, and nobody takes back another's no to a call of their own.",
            "Let another operator take it back.",
        )


def difference(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[dict[str, Json]]:
    """What is not as it was when a person last said yes: one item a field, with both values."""
    names = sorted((before.keys() | now.keys()) - {"call_id", "run_id"})
    return [
        {"field": name, "before": before.get(name), "now": now.get(name)}
        for name in names
        if before.get(name) != now.get(name)
    ]
