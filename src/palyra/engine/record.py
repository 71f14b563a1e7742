"""Steps 8, 11 and 12: what is written about a call before it runs, and what is attested, kept and answered after.

Rules: input, plan, output and kept details enter the journal only as salted commitments; the stored details are
redacted first; the attestation is made of what the trip holds at the end, whichever way that end came.

Not here: the form of entries (journal/chain) and attestations (attest), storing (journal port).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from palyra.canon import canonical
from palyra.engine.attesting import NOTHING_RAN, attest_call
from palyra.engine.budget import spending_of
from palyra.engine.decision import stale_sentence
from palyra.engine.fixed import Fixed, egress_mode, fixed_of
from palyra.engine.hints import hint_of, operator_hint
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import ConfigError, StateError
from palyra.journal.chain import EgressSummary, Said, draft_intent, draft_result, said_in_result
from palyra.journal.commitments import SALT_BYTES, commit_values
from palyra.model.budget import Spending
from palyra.model.outcome import BudgetView, Execution, Outcome, Status
from palyra.model.plan import Plan, ProcessPlan
from palyra.model.record import Closing, Commitment, EntryDraft, Opening, Recorded, RunSpec
from palyra.protocol.wire import stored_outcome_bytes
from palyra.redact.values import redact_text
from palyra.values import change


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
    attestation = attest_call(trip, ports, ending, execution, output_bytes, fixed)
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
        operator_hint=operator_hint(trip, ending),
        policy_stale=trip.policy_stale if trip.policy_sha256 is not None else _stale(ports),
        output=ending.output,
        usage=execution.usage,
        budget=_nothing_spent(trip.run.calls_max),
        approval=ending.approval,
        artifacts=trip.artifacts,
        attestation=attestation,
    )
    return outcome, _closing(trip, ports, execution, outcome, output_bytes, fixed)


def _stale(ports: Ports) -> str | None:
    """For a call that was refused before policy was asked."""
    try:
        return stale_sentence(ports.policies.current())
    except (ConfigError, StateError):
        return None


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
        salts=b"" if trip.ready is None else trip.ready.take_salts(),
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
    salts: bytes = b"",
) -> Closing:
    """`unopened`: input and details of a call without an intent, which has no entry but this one. `salts`: fresh ones
    for the commitment to its output, where they were made already."""
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
            commitments=commit_values(values, salts) if salts and unopened is None else _commit(ports, *values),
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


def _clean(text: str | None, secrets: Sequence[tuple[str, bytes]]) -> str | None:
    """Sentences name arguments, and an argument may be a secret."""
    return None if text is None else redact_text(text, secrets)


def _egress(execution: Execution, mode: str) -> EgressSummary | None:
    if not mode:
        return None
    if not execution.connections:
        return _nothing_reached(mode)
    allowed = [c for c in execution.connections if c.verdict == "allowed"]
    return EgressSummary(
        mode=mode,
        allowed=len(allowed),
        denied=len(execution.connections) - len(allowed),
        bytes_up=sum(c.bytes_up for c in execution.connections),
        bytes_down=sum(c.bytes_down for c in execution.connections),
    )


@lru_cache(maxsize=8)
def _nothing_reached(mode: str) -> EgressSummary:
    return EgressSummary(mode=mode)


def _commit(ports: Ports, *values: tuple[str, bytes]) -> tuple[Commitment, ...]:
    return commit_values(values, ports.ids.random_bytes(SALT_BYTES * len(values)))
