"""Steps 8, 11 and 12: what is written about a call before it runs, and what is attested, kept and answered after.

Rules: input, plan, output and kept details enter the journal only as salted commitments; the stored details are
redacted first; the attestation is made of what the trip holds at the end, whichever way that end came.

Not here: the form of entries (journal/chain) and attestations (attest), storing (journal port).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache

import orjson

from palyra.attest import DecisionFacts, Enforcement, Statement, attest
from palyra.canon import Json, canonical, digest, sha256_hex
from palyra.engine.budget import reservation_of, spending_of
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import Reason
from palyra.journal.chain import (
    Asked,
    Decided,
    EgressSummary,
    commit_value,
    intent_draft,
    result_draft,
)
from palyra.model.budget import Spending
from palyra.model.grant import decision_json
from palyra.model.net import EgressMode
from palyra.model.outcome import BudgetView, Execution, Outcome, Status, Usage
from palyra.model.plan import Facts, FetchPlan, Plan, ProcessPlan
from palyra.model.record import Closing, Commitment, Opening, Recorded, RunSpec
from palyra.model.wasm import WasmPlan
from palyra.policy.request import MAX_TEXT
from palyra.protocol.wire import stored_outcome_bytes
from palyra.redact.stream import is_clear, redact_json, redact_text

NOTHING_RAN = Execution(status=Status.REFUSED, usage=Usage())
_SALT_BYTES = 32
BUILTIN = "builtin"
_FACTS = tuple(field.name for field in fields(Facts))
PROVEN_BACKEND = "bubblewrap"
"""The one `palyra doctor --prove` attacks."""


def make_opening(trip: Trip, ports: Ports) -> Opening:
    """8 — the intent: durable before anything is launched."""
    assert trip.plan is not None
    details = orjson.dumps(_details(trip, ports))
    entry = intent_draft(
        asked=_asked(trip),
        decided=_decided(trip, ports),
        owner=ports.owners.me(),
        executor=trip.plan.executor,
        enforcement=_enforcement(trip.plan, None, ports.proof_id),
        limits=trip.plan.limits.as_json(),
        commitments=(
            _commit(ports, "input", trip.input_bytes),
            _commit(ports, "plan", trip.plan_bytes),
            _commit(ports, "details", details),
        ),
    )
    return Opening(
        run=trip.run.record,
        call_id=trip.call_id,
        tool=trip.request.tool,
        principal=str(trip.run.context.principal),
        input_sha256=trip.input_sha256,
        owner=ports.owners.me(),
        entry=entry,
        opened_unix_ms=ports.clock.now_unix_ms(),
        details=details,
        reserve=reservation_of(trip.plan),
        permission=trip.permission,
    )


def make_closing(trip: Trip, ports: Ports, ending: Ending) -> tuple[Outcome, Closing]:
    """11 attest, 12 close — the outcome without its receipt, and what the journal is to keep."""
    execution = ending.execution or NOTHING_RAN
    if execution.usage.wall_us == 0:
        wall = ports.clock.monotonic_us() - trip.started_us
        execution = replace(execution, usage=replace(execution.usage, wall_us=wall))
    output_bytes = canonical(ending.output)
    attestation = attest(_statement(trip, ports, ending, execution, output_bytes), ports.key)
    secrets = ports.secrets.known_values(trip.run.run_id)
    outcome = Outcome(
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        tool=trip.request.tool,
        status=ending.status,
        success=ending.success,
        reason=ending.reason,
        message=_clean(ending.message, secrets),
        hint=_clean(ending.hint, secrets),
        output=ending.output,
        usage=execution.usage,
        budget=BudgetView(calls_max=trip.run.calls_max),
        approval=ending.approval,
        artifacts=trip.artifacts,
        attestation=attestation,
    )
    return outcome, _closing(trip, ports, execution, outcome, output_bytes)


def with_receipt(outcome: Outcome, recorded: Recorded) -> Outcome:
    return replace(
        outcome,
        receipt=recorded.receipt.as_json(),
        budget=recorded.budget,
    )


def _closing(trip: Trip, ports: Ports, execution: Execution, outcome: Outcome, output_bytes: bytes) -> Closing:
    opened = trip.opened is not None
    return assemble(
        ports,
        outcome,
        execution,
        output_bytes=output_bytes,
        asked=_asked(trip),
        decided=_decided(trip, ports),
        run=trip.run.record,
        input_sha256=trip.input_sha256,
        opened=opened,
        redactions=trip.redactions,
        details=b"" if opened else orjson.dumps(_details(trip, ports)),
        input_bytes=None if opened else trip.input_bytes,
        # One that waits for a person claims no id: the caller repeats it under the same one.
        keep_call=trip.parsed and outcome.status is not Status.PENDING_APPROVAL,
        egress_mode=_egress_mode(trip.plan),
        spent=spending_of(trip, execution),
        holds=_goes_on(trip.plan, outcome.status),
    )


def _egress_mode(plan: Plan | None) -> str:
    if isinstance(plan, WasmPlan):
        return EgressMode.STRICT.value  # a guest has no socket: what it reaches is granted by name
    return plan.net.mode.value if isinstance(plan, ProcessPlan | FetchPlan) else ""


def _goes_on(plan: Plan | None, status: Status) -> bool:
    """A background process that started is settled at its own end."""
    return isinstance(plan, ProcessPlan) and bool(plan.lifetime) and status is Status.COMPLETED


def assemble(
    ports: Ports,
    outcome: Outcome,
    execution: Execution,
    *,
    asked: Asked,
    decided: Decided,
    run: RunSpec,
    input_sha256: str,
    opened: bool,
    redactions: Mapping[str, int],
    details: bytes,
    input_bytes: bytes | None,
    keep_call: bool,
    egress_mode: str,
    output_bytes: bytes | None = None,
    spent: Spending | None,
    holds: bool = False,
) -> Closing:
    output = canonical(outcome.output) if output_bytes is None else output_bytes
    kept = () if input_bytes is None else (("input", input_bytes), ("details", details))
    entry = result_draft(
        asked=asked,
        decided=decided,
        opened=opened,
        status=outcome.status.value,
        reason=outcome.reason.value if outcome.reason else None,
        success=outcome.success,
        exit_code=execution.exit_code,
        signal=execution.signal,
        stdout_bytes=execution.stdout_bytes,
        stderr_bytes=execution.stderr_bytes,
        truncated=execution.truncated,
        usage=execution.usage.as_json(),
        egress=_egress(execution, egress_mode),
        redactions=redactions,
        executor=outcome.attestation["executor"],
        enforcement=outcome.attestation["sandbox_enforcement"],
        execution_sha256=outcome.attestation["execution_sha256"],
        attestation_id=outcome.attestation["attestation_id"],
        commitments=[_commit(ports, *pair) for pair in (("output", output), *kept)],
        artifacts=[ref.artifact_id for ref in outcome.artifacts],
    )
    return Closing(
        run=run,
        call_id=outcome.call_id,
        tool=outcome.tool,
        principal=asked.principal,
        input_sha256=input_sha256,
        status=outcome.status.value,
        reason=outcome.reason.value if outcome.reason else None,
        entry=entry,
        closed_unix_ms=ports.clock.now_unix_ms(),
        outcome=stored_outcome_bytes(outcome),
        opened=opened,
        details=details,
        spent=spent,
        holds=holds,
        keep_call=keep_call,
    )


def _statement(trip: Trip, ports: Ports, ending: Ending, execution: Execution, output_bytes: bytes) -> Statement:
    plan, decision = trip.plan, decision_json(trip.decision)
    # An attestation never names an executor that did not run the code.
    ran = trip.opened is not None and plan is not None and ending.reason is not Reason.SPAWN_FAILED
    by_us = trip.opened is not None and ending.by_engine
    output_sha256 = sha256_hex(output_bytes)
    return Statement(
        attestation_id=ports.ids.ulid(),
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        tool=trip.request.tool,
        executor=BUILTIN if by_us else plan.executor if ran and plan is not None else "policy",
        sandbox_enforcement=enforcement_of(
            _enforcement(plan if ran and not by_us else None, execution, ports.proof_id)
        ),
        executed_at_unix_ms=trip.received_unix_ms,
        status=ending.status.value,
        reason=ending.reason.value if ending.reason else None,
        success=ending.success,
        timed_out=ending.status is Status.TIMEOUT,
        exit_code=execution.exit_code,
        input_sha256=trip.input_sha256,
        output_sha256=trip.full_output_sha256 or output_sha256,
        projected_output_sha256=output_sha256 if trip.full_output_sha256 else None,
        config_sha256=ports.config.digest,
        policy_sha256=trip.policy_sha256,
        decision=DecisionFacts(effect=decision["effect"], policies=tuple(decision["policies"])),
        limits=(plan.limits if plan is not None else trip.run.limits).as_json(),
        usage=execution.usage.as_json(),
        nonce=ports.ids.random_bytes(32),
        plan_sha256=sha256_hex(trip.plan_bytes) if plan is not None else None,
        approval_id=trip.approval_id,
        skill_sha256=_payload_of(trip),
        egress_sha256=digest(ending.output["egress"]) if "egress" in ending.output else None,
        redactions=trip.redactions,
    )


def _payload_of(trip: Trip) -> str | None:
    """What of foreign code a guest's call was about: the skill's payload, or the inline module itself."""
    if trip.guest is None:
        return None
    return trip.guest.skill.payload_sha256 if trip.guest.skill is not None else trip.guest.module_sha256


def _enforcement(plan: Plan | None, execution: Execution | None, proof_id: str | None) -> dict[str, Json]:
    if plan is None:
        return {"backend": "", "egress_mode": "", "guarantees": [], "degraded": [], "proof_id": None}
    late = execution.degraded if execution is not None else ()
    return {
        "backend": plan.backend,
        "egress_mode": _egress_mode(plan),
        "guarantees": sorted(g.value for g in plan.guarantees),
        "degraded": [*plan.degraded, *late],
        "proof_id": proof_id if plan.backend == PROVEN_BACKEND else None,
    }


def enforcement_of(value: Mapping[str, Json]) -> Enforcement:
    return Enforcement(
        backend=value.get("backend", ""),
        egress_mode=value.get("egress_mode", ""),
        guarantees=tuple(value.get("guarantees", ())),
        degraded=tuple(value.get("degraded", ())),
        proof_id=value.get("proof_id"),
    )


def _asked(trip: Trip) -> Asked:
    context = trip.run.context
    return Asked(
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        tool=trip.request.tool,
        principal=str(context.principal),
        door=context.door.value,
        device=context.device,
        channel=context.channel,
        session=context.session,
        skill=context.skill,
    )


def _decided(trip: Trip, ports: Ports) -> Decided:
    decision = decision_json(trip.decision)
    return Decided(
        effect=decision["effect"],
        policies=tuple(decision["policies"]),
        policy_sha256=trip.policy_sha256,
        config_sha256=ports.config.digest,
        approval_id=trip.approval_id,
    )


def _details(trip: Trip, ports: Ports) -> dict[str, Json]:
    """What is kept beside the entry so that a decision can be explained and made again; secrets redacted."""
    plan = trip.plan
    secrets = ports.secrets.known_values(trip.run.run_id)
    request = trip.cedar.as_json() if trip.cedar is not None else None
    kept = redacted_request(request, secrets)
    return {
        "door": trip.run.context.door.value,
        "executor": plan.executor if plan is not None else None,
        "enforcement": _enforcement(plan, None, ports.proof_id),
        "config_sha256": ports.config.digest,
        "policy_sha256": trip.policy_sha256,
        "limits": trip.run.limits.as_json(),
        "decision": decision_json(trip.decision),
        "plan_sha256": sha256_hex(trip.plan_bytes) if plan is not None else None,
        "input_sha256": trip.input_sha256,
        "input": redact_json(dict(trip.call.input), secrets) if trip.call is not None else None,
        "request": kept,
        "request_redacted": kept != request,
        "shadow": trip.shadow,
        "facts": redact_json(_facts(trip), secrets),
        "plan": _plan_of(trip.plan_bytes, secrets),
    }


def redacted_request(request: dict[str, Json] | None, secrets: Sequence[tuple[str, bytes]]) -> Json:
    """The request as it may be kept: a program's name, a device or a channel is the caller's text. Numbers and names
    of ours stay as they are, so that what is kept is still a request and can be decided again."""
    if request is None:
        return None
    texts = {name: value for name, value in request["context"].items() if isinstance(value, str)}
    clean = redact_json(list(texts.values()), secrets)
    if clean == list(texts.values()):
        return request
    short = (value[:MAX_TEXT] for value in clean)
    return {**request, "context": request["context"] | dict(zip(texts, short, strict=True))}


def _plan_of(plan_bytes: bytes, secrets: Sequence[tuple[str, bytes]]) -> Json:
    """As its bytes where nothing in it has to go, so that it is not read and written once more."""
    if not plan_bytes:
        return None
    if not secrets and _is_clear(plan_bytes):
        return orjson.Fragment(plan_bytes)
    return redact_json(orjson.loads(plan_bytes), secrets)


_is_clear = lru_cache(maxsize=128)(is_clear)


def _clean(text: str | None, secrets: Sequence[tuple[str, bytes]]) -> str | None:
    """Sentences name arguments, and an argument may be a secret."""
    return None if text is None else redact_text(text, secrets)


def _facts(trip: Trip) -> Json:
    if trip.facts is None:
        return None
    facts = {name: getattr(trip.facts, name) for name in _FACTS}
    facts["details"] = [list(pair) for pair in trip.facts.details]
    return facts


def _egress(execution: Execution, mode: str) -> EgressSummary | None:
    if not mode:
        return None
    allowed = [c for c in execution.connections if c.verdict == "allowed"]
    return EgressSummary(
        mode=mode,
        allowed=len(allowed),
        denied=len(execution.connections) - len(allowed),
        bytes_up=sum(c.bytes_up for c in execution.connections),
        bytes_down=sum(c.bytes_down for c in execution.connections),
    )


def _commit(ports: Ports, field: str, value: bytes) -> Commitment:
    return commit_value(field, value, ports.ids.random_bytes(_SALT_BYTES))
