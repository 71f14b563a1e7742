"""Steps 8, 11 and 12: what is written about a call before it runs, and what is attested, kept and answered after.

Rules: input, plan, output and kept details enter the journal only as salted commitments; the stored details are
redacted first; the attestation is made of what the trip holds at the end, whichever way that end came.

Not here: the form of entries (journal/chain) and attestations (attest), storing (journal port).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from palyra.attest import Enforcement, Statement, attest
from palyra.canon import Json, canonical, digest, sha256_hex
from palyra.engine.budget import spending_of
from palyra.engine.fixed import Fixed, egress_mode, enforcement_json, enforcement_of, fixed_of
from palyra.engine.hints import hint_of
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import Reason
from palyra.journal.chain import EgressSummary, Said, draft_intent, draft_result, said_in_result
from palyra.journal.commitments import SALT_BYTES, commit_values
from palyra.model.budget import Spending
from palyra.model.outcome import BudgetView, Execution, Outcome, Status, Usage
from palyra.model.plan import Plan, ProcessPlan
from palyra.model.record import Closing, Commitment, EntryDraft, Opening, Recorded, RunSpec
from palyra.protocol.wire import stored_outcome_bytes
from palyra.redact.values import redact_text
from palyra.values import change

NOTHING_RAN = Execution(status=Status.REFUSED, usage=Usage())
BUILTIN = "builtin"


def make_opening(trip: Trip, ports: Ports) -> Opening:
    """8 — the intent: durable before anything is launched."""
    assert trip.plan is not None
    fixed = fixed_of(trip, ports)
    details = fixed.details_with(trip.cedar, trip.shadow)
    entry = draft_intent(
        fixed.intent,
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        commitments=_commit(ports, ("input", trip.input_bytes), ("plan", trip.plan_bytes), ("details", details)),
    )
    return Opening(
        run=trip.run.record,
        call_id=trip.call_id,
        tool=trip.request.tool,
        principal=trip.run.owner.principal,
        input_sha256=trip.input_sha256,
        owner=fixed.owner,
        entry=entry,
        opened_unix_ms=ports.clock.now_unix_ms(),
        details=details,
        reserve=fixed.reserve,
        permission=trip.permission,
        run_looks_new=trip.run_looks_new,
    )


def make_closing(
    trip: Trip, ports: Ports, ending: Ending, output_bytes: bytes | None = None
) -> tuple[Outcome, Closing]:
    """11 attest, 12 close — the outcome without its receipt, and what the journal is to keep. `output_bytes`: the
    output's canonical ones, where they were made already."""
    execution = ending.execution or NOTHING_RAN
    if execution.usage.wall_us == 0:
        wall = ports.clock.monotonic_us() - trip.started_us
        execution = replace(execution, usage=replace(execution.usage, wall_us=wall))
    output_bytes = canonical(ending.output) if output_bytes is None else output_bytes
    fixed = fixed_of(trip, ports)
    attestation = attest(_statement(trip, ports, ending, execution, output_bytes, fixed), ports.key, fixed.attested)
    secrets = fixed.secrets
    outcome = Outcome(
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        tool=trip.request.tool,
        status=ending.status,
        success=ending.success,
        reason=ending.reason,
        message=_clean(ending.message, secrets),
        hint=_clean(hint_of(trip, ending), secrets),
        output=ending.output,
        usage=execution.usage,
        budget=_nothing_spent(trip.run.calls_max),
        approval=ending.approval,
        artifacts=trip.artifacts,
        attestation=attestation,
    )
    return outcome, _closing(trip, ports, execution, outcome, output_bytes, fixed)


@lru_cache(maxsize=64)
def _nothing_spent(calls_max: int) -> BudgetView:
    """Until the journal says what is: the same for every call of every run on these terms."""
    return BudgetView(calls_max=calls_max)


def with_receipt(outcome: Outcome, recorded: Recorded) -> Outcome:
    return change(outcome, receipt=recorded.receipt.as_json(), budget=recorded.budget)


def _closing(
    trip: Trip, ports: Ports, execution: Execution, outcome: Outcome, output_bytes: bytes, fixed: Fixed
) -> Closing:
    enforcement = outcome.attestation["sandbox_enforcement"]
    as_planned = enforcement == fixed.enforcement
    return assemble(
        ports,
        outcome,
        execution,
        output_bytes=output_bytes,
        said=fixed.result if as_planned else Said(said_in_result(fixed.asked, fixed.decided, enforcement)),
        principal=trip.run.owner.principal,
        run=trip.run.record,
        input_sha256=trip.input_sha256,
        redactions=trip.redactions,
        unopened=(trip.input_bytes, fixed.details_with(trip.cedar, trip.shadow)) if trip.opened is None else None,
        # One that waits for a person claims no id: the caller repeats it under the same one.
        keep_call=trip.parsed and outcome.status is not Status.PENDING_APPROVAL,
        egress_mode=egress_mode(trip.plan),
        spent=spending_of(trip, execution),
        holds=_goes_on(trip.plan, outcome.status),
    )


def _goes_on(plan: Plan | None, status: Status) -> bool:
    """A background process that started is settled at its own end."""
    return isinstance(plan, ProcessPlan) and bool(plan.lifetime) and status is Status.COMPLETED


def assemble(
    ports: Ports,
    outcome: Outcome,
    execution: Execution,
    *,
    said: Said,
    principal: str,
    run: RunSpec,
    input_sha256: str,
    redactions: Mapping[str, int],
    keep_call: bool,
    egress_mode: str,
    output_bytes: bytes | None = None,
    spent: Spending | None,
    holds: bool = False,
    unopened: tuple[bytes, bytes] | None = None,
) -> Closing:
    """`unopened`: input and details of a call without an intent, which has no entry but this one."""
    attested, details = outcome.attestation, b"" if unopened is None else unopened[1]
    values = [("output", canonical(outcome.output) if output_bytes is None else output_bytes)]
    if unopened is not None:
        values += [("input", unopened[0]), ("details", details)]
    return Closing(
        run=run,
        call_id=outcome.call_id,
        tool=outcome.tool,
        principal=principal,
        input_sha256=input_sha256,
        status=attested["status"],
        reason=attested["reason"],
        entry=_result(
            outcome,
            execution,
            said,
            opened=unopened is None,
            redactions=redactions,
            egress=_egress(execution, egress_mode),
            commitments=_commit(ports, *values),
        ),
        closed_unix_ms=ports.clock.now_unix_ms(),
        outcome=stored_outcome_bytes(outcome),
        opened=unopened is None,
        details=details,
        spent=spent,
        holds=holds,
        keep_call=keep_call,
    )


def _result(
    outcome: Outcome,
    execution: Execution,
    said: Said,
    *,
    opened: bool,
    redactions: Mapping[str, int],
    egress: EgressSummary | None,
    commitments: tuple[Commitment, ...],
) -> EntryDraft:
    attested = outcome.attestation
    return draft_result(
        said,
        call_id=outcome.call_id,
        run_id=outcome.run_id,
        opened=opened,
        status=attested["status"],
        reason=attested["reason"],
        success=outcome.success,
        exit_code=execution.exit_code,
        signal=execution.signal,
        stdout_bytes=execution.stdout_bytes,
        stderr_bytes=execution.stderr_bytes,
        truncated=execution.truncated,
        usage=attested["usage"],
        egress=egress,
        redactions=redactions,
        executor=attested["executor"],
        execution_sha256=attested["execution_sha256"],
        attestation_id=attested["attestation_id"],
        commitments=commitments,
        artifacts=[ref.artifact_id for ref in outcome.artifacts],
    )


def _statement(
    trip: Trip, ports: Ports, ending: Ending, execution: Execution, output_bytes: bytes, fixed: Fixed
) -> Statement:
    plan = trip.plan
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
        sandbox_enforcement=_in_force(plan if ran and not by_us else None, execution, ports, fixed),
        executed_at_unix_ms=trip.received_unix_ms,
        status=ending.status.value,
        reason=ending.reason.value if ending.reason else None,
        success=ending.success,
        timed_out=ending.status is Status.TIMEOUT,
        exit_code=execution.exit_code,
        input_sha256=trip.input_sha256,
        output_sha256=trip.full_output_sha256 or output_sha256,
        projected_output_sha256=output_sha256 if trip.full_output_sha256 else None,
        config_sha256=fixed.config_sha256,
        policy_sha256=trip.policy_sha256,
        decision=fixed.facts,
        limits=fixed.limits,
        usage=execution.usage.as_json(),
        nonce=ports.ids.random_bytes(32),
        plan_sha256=fixed.plan_sha256,
        approval_id=trip.approval_id,
        skill_sha256=_payload_of(trip),
        compiled_sha256=execution.compiled_sha256,
        egress_sha256=_egress_sha256(ending.output, fixed),
        redactions=trip.redactions,
    )


def _in_force(plan: Plan | None, execution: Execution, ports: Ports, fixed: Fixed) -> Enforcement:
    if plan is not None and not execution.degraded:
        return fixed.in_force
    return enforcement_of(enforcement_json(plan, execution, ports.proven))


def _payload_of(trip: Trip) -> str | None:
    """What of foreign code a guest's call was about: the skill's payload, or the inline module itself."""
    if trip.guest is None:
        return None
    return trip.guest.skill.payload_sha256 if trip.guest.skill is not None else trip.guest.module_sha256


def _clean(text: str | None, secrets: Sequence[tuple[str, bytes]]) -> str | None:
    """Sentences name arguments, and an argument may be a secret."""
    return None if text is None else redact_text(text, secrets)


def _egress_sha256(output: Mapping[str, Json], fixed: Fixed) -> str | None:
    """Most processes reach for nothing. What is equal here is also written alike: names and an empty list."""
    if "egress" not in output:
        return None
    egress = output["egress"]
    return fixed.idle_sha256 if egress == fixed.idle else digest(egress)


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


def _commit(ports: Ports, *values: tuple[str, bytes]) -> tuple[Commitment, ...]:
    return commit_values(values, ports.ids.random_bytes(SALT_BYTES * len(values)))
