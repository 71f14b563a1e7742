"""Step 11: what is attested of a call, and what of that is made while its program runs.

Most of a statement is known before the call ends. Where nobody else's program runs there is nothing to do but wait
then, so identifiers, salts and every field that does not tell of the end are made in that time (`get_ready`), and only
the end is filled in when somebody waits for it. Made ahead or not, the bytes are the same. Rules: what was made ahead
is used once; only where the call ended as it was planned, and while what it was made of (decision, plan, secrets, who
runs it) is still what holds. Otherwise all of it is made then.

Not here: the form of attestations (attest), what the journal keeps of them (record).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palyra.attest import Begun, Enforcement, Statement, attest, begin, finish
from palyra.canon import Json, digest, sha256_hex
from palyra.engine.fixed import Fixed, enforcement_json, enforcement_of, fixed_of
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import Reason
from palyra.journal.commitments import SALT_BYTES
from palyra.model.outcome import Execution, Status, Usage
from palyra.model.plan import Plan
from palyra.values import change, dataclass

NOTHING_RAN = Execution(status=Status.REFUSED, usage=Usage())
BUILTIN = "builtin"
_AS_PLANNED = Ending(status=Status.COMPLETED)


@dataclass(slots=True, kw_only=True, eq=False)
class Ready:
    """Of one call's record, before the call has ended."""

    fixed: Fixed
    """What it was made of."""
    begun: Begun | None
    salts: bytes
    """For the commitment to its output."""

    def take_begun(self) -> Begun | None:
        begun, self.begun = self.begun, None
        return begun

    def take_salts(self) -> bytes:
        salts, self.salts = self.salts, b""
        return salts


def get_ready(trip: Trip, ports: Ports) -> None:
    """While the program of an opened call runs, and nobody waits for us."""
    fixed = fixed_of(trip, ports)
    if trip.opened is None or fixed.attested is None:
        return
    statement = _statement(trip, ports, _AS_PLANNED, NOTHING_RAN, b"", fixed)
    guessed = change(statement, egress_sha256=fixed.idle_sha256)
    begun = begin(guessed, ports.key, fixed.attested)
    trip.ready = Ready(fixed=fixed, begun=begun, salts=ports.ids.random_bytes(SALT_BYTES))


def attest_call(
    trip: Trip, ports: Ports, ending: Ending, execution: Execution, output_bytes: bytes, fixed: Fixed
) -> dict[str, Json]:
    ready = trip.ready
    as_planned = ending.reason is not Reason.SPAWN_FAILED and not ending.by_engine and not execution.degraded
    begun = ready.take_begun() if ready is not None and ready.fixed is fixed and as_planned else None
    if begun is not None:
        return finish(begun, _late(trip, ending, execution, output_bytes, fixed), ports.key)
    return attest(_statement(trip, ports, ending, execution, output_bytes, fixed), ports.key, fixed.attested)


def _statement(
    trip: Trip, ports: Ports, ending: Ending, execution: Execution, output_bytes: bytes, fixed: Fixed
) -> Statement:
    """11 — the whole of it, whichever way the call ended."""
    plan = trip.plan
    # An attestation never names an executor that did not run the code.
    ran = trip.opened is not None and plan is not None and ending.reason is not Reason.SPAWN_FAILED
    by_us = trip.opened is not None and ending.by_engine
    return Statement(
        attestation_id=ports.ids.ulid(),
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        tool=trip.request.tool,
        executor=BUILTIN if by_us else plan.executor if ran and plan is not None else "policy",
        sandbox_enforcement=_in_force(plan if ran and not by_us else None, execution, ports, fixed),
        executed_at_unix_ms=trip.received_unix_ms,
        input_sha256=trip.input_sha256,
        config_sha256=fixed.config_sha256,
        policy_sha256=trip.policy_sha256,
        decision=fixed.facts,
        limits=fixed.limits,
        nonce=ports.ids.random_bytes(32),
        plan_sha256=fixed.plan_sha256,
        approval_id=trip.approval_id,
        skill_sha256=_payload_of(trip),
        **_late(trip, ending, execution, output_bytes, fixed),
    )


def _late(trip: Trip, ending: Ending, execution: Execution, output_bytes: bytes, fixed: Fixed) -> dict[str, Any]:
    """How it ended: `attest.LATE`."""
    output_sha256 = sha256_hex(output_bytes)
    return {
        "status": ending.status.value,
        "reason": ending.reason.value if ending.reason else None,
        "success": ending.success,
        "timed_out": ending.status is Status.TIMEOUT,
        "exit_code": execution.exit_code,
        "output_sha256": trip.full_output_sha256 or output_sha256,
        "projected_output_sha256": output_sha256 if trip.full_output_sha256 else None,
        "compiled_sha256": execution.compiled_sha256,
        "egress_sha256": _egress_sha256(ending.output, fixed),
        "redactions": {**trip.redactions},
        "usage": execution.usage.as_json(),
    }


def _in_force(plan: Plan | None, execution: Execution, ports: Ports, fixed: Fixed) -> Enforcement:
    if plan is not None and not execution.degraded:
        return fixed.in_force
    return enforcement_of(enforcement_json(plan, execution, ports.proven))


def _payload_of(trip: Trip) -> str | None:
    """What of foreign code a guest's call was about: the skill's payload, or the inline module itself."""
    if trip.guest is None:
        return None
    return trip.guest.skill.payload_sha256 if trip.guest.skill is not None else trip.guest.module_sha256


def _egress_sha256(output: Mapping[str, Json], fixed: Fixed) -> str | None:
    """Most processes reach for nothing. What is equal here is also written alike: names and an empty list."""
    if "egress" not in output:
        return None
    egress = output["egress"]
    return fixed.idle_sha256 if egress == fixed.idle else digest(egress)
