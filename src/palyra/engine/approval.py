"""Step 7: a call that policy asks about finds its grant, waits for a person, or ends as pending.

Rules: what a person sees and what the grant binds are made of the same plan; after any waiting the call is looked at
again from the start, and a plan that changed meanwhile is not the one that was approved; the person who made the call
may confirm it at its terminal only where the bundle permits `approval::confirm`, and only as `user:`.

Not here: what binds (approvals/rules), keeping and deciding (a port), using a grant (the journal port, step 8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import orjson

from palyra.approvals.rules import bind
from palyra.canon import Json, canonical
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import Reason, Rejected
from palyra.model.approval import Approval, ApprovalState, Permission, Question
from palyra.model.call import Door, PrincipalKind
from palyra.model.grant import Allow, Ask
from palyra.model.outcome import Status
from palyra.model.plan import ProcessPlan
from palyra.policy.decide import decide
from palyra.policy.request import CONFIRM, ELICIT
from palyra.redact.values import hidden_by_shape, redact_json

POLL_S = 0.1

Assess = Callable[[Trip], Awaitable[None]]


async def approve(trip: Trip, ports: Ports, assess: Assess) -> Ending | None:
    """None when the call may go on; else how it ends for now. `Rejected` when somebody said no, or nobody in time."""
    check_shown_whole(trip, ports)
    question = make_question(trip, ports)
    approval = await ports.approver.ask(question)
    if approval.state is ApprovalState.PENDING:
        _tell(trip, pending_json(approval, ports))
        approval = await _answer(trip, ports, question, approval)
        _tell(trip, None)
        trip.approval_id = approval.approval_id
        if approval.state is ApprovalState.PENDING:
            return _pending(trip, approval, ports)
        _check_said(approval)
        await assess(trip)
        if not isinstance(trip.decision, Ask):
            trip.approval_id = None  # policy changed meanwhile and asks nobody any more
            return None
        question = check_unchanged(trip, ports, question)
    trip.approval_id = approval.approval_id
    _check_said(approval)
    trip.permission = Permission(approval_id=approval.approval_id, question=question)
    return None


def check_shown_whole(trip: Trip, ports: Ports) -> None:
    """What looks like a secret is hidden from the person too, and its writer chooses what it is: `?token=a;rm${IFS}x`
    in a shell's text, `Authorization: exec(…)` in Python's. Nobody says yes to that."""
    if _hidden(trip, ports)[1]:
        raise Rejected(
            Reason.NOT_APPROVED,
            "Part of this call looks like a secret and would be hidden from the person who is asked, so nobody is.",
            "Keep the secret in the vault and bind it to its host: palyra secrets set NAME --host HOST.",
        )


def _hidden(trip: Trip, ports: Ports) -> tuple[int, int]:
    assert trip.call is not None
    argv = list(trip.plan.argv) if isinstance(trip.plan, ProcessPlan) else []
    return hidden_by_shape([dict(trip.call.input), argv], ports.secrets.known_values(trip.run.run_id))


def _tell(trip: Trip, waits_for: Mapping[str, Json] | None) -> None:
    if trip.request.on_pending is not None:
        trip.request.on_pending(waits_for)


def make_question(trip: Trip, ports: Ports) -> Question:
    assert trip.call is not None
    assert trip.plan is not None
    assert isinstance(trip.decision, Ask)
    principal = str(trip.run.context.principal)
    bound = bind(
        principal=principal,
        tool=trip.call.tool,
        input_sha256=trip.input_sha256,
        plan=trip.plan.as_json(),
        policy_sha256=trip.policy_sha256,
        policies=trip.decision.policies,
    )
    plan = trip.plan if isinstance(trip.plan, ProcessPlan) else None
    return Question(
        principal=principal,
        run_id=trip.run.run_id,
        call_id=trip.call_id,
        tool=trip.call.tool,
        program=plan.argv[0] if plan is not None else trip.call.tool,
        binding=bound.binding,
        frame=bound.frame,
        likeness=bound.likeness,
        argv=plan.argv if plan is not None else (),
        shown=canonical(redact_json(shown(trip, ports), ports.secrets.known_values(trip.run.run_id))),
    )


async def _answer(trip: Trip, ports: Ports, question: Question, approval: Approval) -> Approval:
    """The person at the terminal, then whoever decides while the door waits."""
    confirm = trip.request.confirm
    if confirm is not None and _may_confirm(trip, ports):
        left_s = max(0.0, (approval.expires_unix_ms - ports.clock.now_unix_ms()) / 1000)
        said = None
        with suppress(TimeoutError):
            said = await asyncio.wait_for(confirm(approval, orjson.loads(question.shown)), left_s)
        if said is not None:
            return await ports.approver.confirm(approval.approval_id, by=question.principal, approved=said)
        approval = await ports.approver.look(approval.approval_id)
    end_us = ports.clock.monotonic_us() + int(trip.request.wait_s * 1e6)
    while approval.state is ApprovalState.PENDING and ports.clock.monotonic_us() < end_us:
        await asyncio.sleep(POLL_S)
        approval = await ports.approver.look(approval.approval_id)
    return approval


def _may_confirm(trip: Trip, ports: Ports) -> bool:
    if trip.cedar is None or trip.run.context.principal.kind is not PrincipalKind.USER:
        return False
    return isinstance(decide(ports.policies.current(), replace(trip.cedar, action=CONFIRM)), Allow)


def may_elicit(trip: Trip, ports: Ports) -> bool:
    """Whether the bundle lets the person in front of the agent's client answer for a call as it was assessed."""
    if trip.cedar is None or not isinstance(trip.decision, Ask):
        return False
    return isinstance(decide(ports.policies.current(), replace(trip.cedar, action=ELICIT)), Allow)


def _check_said(approval: Approval) -> None:
    match approval.state:
        case ApprovalState.APPROVED:
            return
        case ApprovalState.EXPIRED:
            raise Rejected(
                Reason.APPROVAL_TIMEOUT, "Nobody decided on this call in time.", "Repeat the call to ask again."
            )
        case _:
            why = f": {approval.note}" if approval.note else "."
            raise Rejected(
                Reason.NOT_APPROVED,
                f"{approval.decided_by or 'Somebody'} did not approve this call{why}",
                "Do something else; an operator who thinks otherwise takes the no back with palyra approvals revoke "
                f"{approval.approval_id}, then repeat the call.",
            )


def check_unchanged(trip: Trip, ports: Ports, before: Question) -> Question:
    after = make_question(trip, ports)
    if after.binding != before.binding:
        raise Rejected(
            Reason.NOT_APPROVED,
            "What this call would do changed while it waited, so the approval no longer applies.",
            "Repeat the call to ask again.",
        )
    return after


def pending_json(approval: Approval, ports: Ports) -> dict[str, Json]:
    base = ports.config.approvals.console_url.rstrip("/")
    return {
        "approval_id": approval.approval_id,
        "expires_at_unix_ms": approval.expires_unix_ms,
        "url": f"{base}/approvals/{approval.approval_id}" if base else None,
    }


def _why_asked(trip: Trip, ports: Ports) -> str:
    """In the words of the first policy that asks: the caller is told why, as with a refusal."""
    assert trip.decision is not None
    index = ports.policies.current().index
    said = next((index[name].reason for name in trip.decision.policies if name in index and index[name].reason), "")
    return said or f"Policy asks for a person's approval of {trip.request.tool}."


def _pending(trip: Trip, approval: Approval, ports: Ports) -> Ending:
    return Ending(
        status=Status.PENDING_APPROVAL,
        message=f"{_why_asked(trip, ports)} Nobody has decided yet.",
        hint=f"{_who_decides(trip)} can look at it with palyra approvals show {approval.approval_id} and allow it with "
        f"palyra approvals approve {approval.approval_id}; then repeat the call.",
        approval=pending_json(approval, ports),
    )


def _who_decides(trip: Trip) -> str:
    """Nobody decides on a call of their own, except where it asks them (approvals/rules)."""
    context = trip.run.context
    if context.principal.kind is not PrincipalKind.USER:
        return "An operator"
    here = "Repeat the call at a terminal to confirm it there. " if context.door is Door.CLI else ""
    return f"{here}Another operator"


# ── what the person sees ─────────────────────────────────────────────────────


def shown(trip: Trip, ports: Ports) -> dict[str, Json]:
    assert trip.call is not None
    assert trip.tool is not None
    assert trip.decision is not None
    context, index = trip.run.context, ports.policies.current().index
    return {
        "principal": str(context.principal),
        "door": context.door.value,
        "device": context.device,
        "channel": context.channel,
        "run_id": trip.run.run_id,
        "call_id": trip.call_id,
        "tool": trip.call.tool,
        "capabilities": sorted(c.value for c in trip.tool.spec.capabilities),
        "workspace": trip.run.workspace,
        "input": dict(trip.call.input),
        "risks": [*_risks(trip), *_hidden_risk(trip, ports)],
        "policies": [
            {"id": name, "reason": index[name].reason if name in index else ""} for name in trip.decision.policies
        ],
        "policy_sha256": trip.policy_sha256,
        **_program(trip),
    }


def _program(trip: Trip) -> dict[str, Json]:
    plan = trip.plan
    if not isinstance(plan, ProcessPlan):
        return {}
    hosts = trip.job.hosts_named if trip.job is not None else ()
    named = sorted({f"{host.host}:{host.port}" if host.port else host.host for host in hosts})
    value = plan.as_json()
    return {
        "program": value["program"],
        "program_sha256": value["program_sha256"],
        "argv": value["argv"],
        "cwd": value["cwd"],
        "env": value["env"],
        "network": value["net"],
        "hosts_named": named,
        "stdin": {"bytes": len(plan.stdin), "streamed": plan.stdin_streamed},
        "tier": value["tier"],
        "backend": value["backend"],
        "lifetime": plan.lifetime,
        "limits": value["limits"],
        "degraded": value["degraded"],
    }


_RISKS = {
    "interpreter": "it is an interpreter",
    "runs_code": "it can run code that its arguments name",
    "inline_code": "its code is given in its arguments",
    "outside_workspace": "an argument leads out of the workspace",
    "writes_obeyed": "other programs obey the file that it writes, or its name hides letters",
    "background": "it outlives its call",
    "agent_writable": "the agent could have written the program",
}


def _hidden_risk(trip: Trip, ports: Ports) -> list[str]:
    count, _ = _hidden(trip, ports)
    return ["a part of it looks like a secret and is not shown here"] if count else []


def _risks(trip: Trip) -> list[str]:
    facts = trip.facts
    if facts is None:
        return []
    found = [sentence for name, sentence in _RISKS.items() if getattr(facts, name)]
    if facts.egress and facts.egress != "strict":
        found.append(f"its network is not confined (egress {facts.egress})")
    if facts.tier == "B":
        found.append("tier B does not isolate as tier C does")
    if isinstance(trip.plan, ProcessPlan) and trip.plan.stdin_streamed:
        found.append("its stdin is streamed and not part of what is approved")
    if trip.fetch is not None and trip.call is not None and not str(trip.call.input.get("url")).isascii():
        found.append(f"its address is in letters that may look like others: it goes to {trip.fetch.url.host}")
    if trip.tool is not None and trip.tool.spec.sensitive:
        found.append("the tool is marked sensitive")
    return found
