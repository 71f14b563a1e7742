"""`/console/v1/approvals`: what waits for a person, the decision, and the grants.

Rules: an operator decides under the name of its credential; nobody decides on a call of their own, and no agent ever
(approvals/rules). Looking at one request whole is an entry in the journal.
"""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from pydantic import Field

from palyra.approvals.rules import Verdict, difference
from palyra.approvals.store.rows import LAST
from palyra.canon import Json
from palyra.daemon.operators.answering import Line, Listed, Maybe, NextPage, change, get, installed
from palyra.daemon.routes import AnswerModel, Asked, Model, Refused, not_found
from palyra.model.approval import Approval, ApprovalState, Scope

LONGEST_GRANT_S = 30 * 86400


class ApprovalSummary(AnswerModel):
    approval_id: str
    state: ApprovalState
    principal: str
    tool: str
    program: str
    run_id: str
    call_id: str
    asked_at_unix_ms: int
    expires_at_unix_ms: int
    asks: int
    decided_at_unix_ms: int | None
    decided_by: str | None
    self_approved: bool
    reason: str | None
    scope: Scope | None
    pattern: str | None
    valid_until_unix_ms: int | None
    uses: int


class Change(AnswerModel):
    field: str
    before: Json
    now: Json


class FatigueFigures(AnswerModel):
    asked: int
    approved: int
    denied: int
    expired: int


class ApprovalWhole(ApprovalSummary):
    call: dict[str, Json]
    earlier_approval_id: str | None
    changes: list[Change]
    fatigue: dict[str, FatigueFigures]


class WhichApprovals(NextPage):
    state: Literal["pending", "approved", "denied", "expired", "revoked", "all"] = "pending"


class Approving(Model):
    scope: Literal["once", "run"] = "once"
    for_s: Annotated[Annotated[int, Field(ge=1, le=LONGEST_GRANT_S)] | None, Maybe] = None
    """Every such call of this principal, for so many seconds."""
    pattern: Annotated[str, Field(max_length=4000)] = ""
    """Words apart by spaces, or a JSON list of words: `*` within a word, `**` for all further ones."""
    reason: Line = ""


class Denying(Model):
    reason: Line = ""


async def list_approvals(asked: Asked) -> Json:
    query: WhichApprovals = asked.query
    states = tuple(ApprovalState) if query.state == "all" else (ApprovalState(query.state),)
    await installed(asked).approvals.expire_overdue()
    return listed(installed(asked).approvals.list(states=states, before=query.before or LAST, count=query.count), query)


def listed(found: tuple[Approval, ...], query: NextPage) -> dict[str, Json]:
    following = found[-1].approval_id if len(found) == query.count else None
    return {"items": [approval.summary() for approval in found], "next": following}


async def list_grants(asked: Asked) -> Json:
    return {"items": [approval.summary() for approval in installed(asked).approvals.grants()], "next": None}


async def show_approval(asked: Asked) -> Json:
    approval = await installed(asked).approvals.view(_known(asked).approval_id, by=asked.caller.principal)
    return whole(asked, approval)


def whole(asked: Asked, approval: Approval) -> dict[str, Json]:
    store = installed(asked).approvals
    shown, earlier = store.shown(approval), store.earlier(approval)
    return {
        **approval.summary(),
        "call": dict(shown),
        "earlier_approval_id": earlier.approval_id if earlier is not None else None,
        "changes": difference(store.shown(earlier), shown) if earlier is not None else [],
        "fatigue": {name: figures.as_json() for name, figures in store.fatigue(approval).items()},
    }


async def approve(asked: Asked) -> Json:
    body: Approving = asked.body
    if body.for_s is not None and body.scope != "once":
        raise Refused(422, "BAD_ARGUMENTS", "Give either the scope run or a time, not both.", "Leave one out.")
    now = asked.state.clock.now_unix_ms()
    verdict = Verdict(
        approved=True,
        by=asked.caller.principal,
        scope=Scope.UNTIL if body.for_s is not None else Scope(body.scope),
        until_unix_ms=None if body.for_s is None else now + body.for_s * 1000,
        pattern=words_of(body.pattern),
        note=body.reason,
    )
    return (await installed(asked).approvals.decide(_known(asked).approval_id, verdict)).summary()


async def deny(asked: Asked) -> Json:
    body: Denying = asked.body
    verdict = Verdict(approved=False, by=asked.caller.principal, note=body.reason)
    return (await installed(asked).approvals.decide(_known(asked).approval_id, verdict)).summary()


async def revoke(asked: Asked) -> Json:
    return (await installed(asked).approvals.revoke(_known(asked).approval_id, by=asked.caller.principal)).summary()


def words_of(pattern: str) -> tuple[str, ...]:
    """As `palyra approvals approve --pattern`."""
    if not pattern.startswith("["):
        return tuple(pattern.split())
    try:
        words = orjson.loads(pattern)
    except orjson.JSONDecodeError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise Refused(422, "BAD_ARGUMENTS", "A pattern is words, or a JSON list of words.", "Such as: git fetch *")
    return tuple(words)


def _known(asked: Asked) -> Approval:
    found = installed(asked).approvals.find(asked.path["id"])
    if found is None:
        raise not_found("approval")
    return found


ROUTES = (
    get("/approvals", list_approvals, name="list_approvals", says="Requests, the newest first.",
        model=Listed[ApprovalSummary], query=WhichApprovals),
    get("/approvals/grants", list_grants, name="list_grants", says="Approvals that still allow something.",
        model=Listed[ApprovalSummary]),
    get("/approvals/{id}", show_approval, name="show_approval",
        says="All of a request; that you looked at it is journaled.",
        model=ApprovalWhole),
    change("/approvals/{id}/approve", approve, name="approve",
           says="Let exactly this call through, or as widely as given.",
           model=ApprovalSummary, body=Approving),
    change("/approvals/{id}/deny", deny, name="deny", says="Say no.", model=ApprovalSummary, body=Denying),
    change("/approvals/{id}/revoke", revoke, name="revoke_grant", says="Take a yes or a no back.",
           model=ApprovalSummary),
)  # fmt: skip
