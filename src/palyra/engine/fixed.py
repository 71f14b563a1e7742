"""What a call's records hold that is the same each time the call is asked: decision, plan, enforcement, redacted input.

Made once a shape (engine/shapes), for its intent, its result, its attestation and what is kept beside them; the bytes
that are written into entries are made ahead. Rules: what is kept is redacted with the secrets known at that moment, and
made again when any secret came since; a decision, a plan or an owner that is another makes all of it again.

Not here: what changes from call to call (engine/record), the form of entries (journal/chain).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from palyra.attest import Ahead, DecisionFacts, Enforcement, write_ahead
from palyra.canon import Json, digest, sha256_hex
from palyra.engine.budget import reservation_of
from palyra.engine.ports import Ports
from palyra.engine.trip import Trip
from palyra.journal.chain import Asked, Decided, Said, said_in_intent, said_in_result, write_said
from palyra.model.budget import NOTHING, Spending
from palyra.model.grant import Decision, decision_json
from palyra.model.job import Facts
from palyra.model.net import EgressMode
from palyra.model.outcome import Execution
from palyra.model.plan import FetchPlan, Plan, ProcessPlan
from palyra.model.record import Owner
from palyra.model.wasm import WasmPlan
from palyra.policy.inputs import names_place
from palyra.policy.request import MAX_TEXT, Request
from palyra.policy.written import Written, write_with_holes
from palyra.redact.values import is_clear, redact_json
from palyra.values import dataclass, names_of

if TYPE_CHECKING:
    from palyra.sandbox.proven import Proven

_FACTS = names_of(Facts)

Secrets = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    decision: Decision | None
    plan: Plan | None
    policy_sha256: str | None
    approval_id: str | None
    owner: Owner
    secrets: Secrets
    """All of the above is what the rest was made of."""
    asked: Asked
    decided: Decided
    facts: DecisionFacts
    enforcement: Mapping[str, Json]
    in_force: Enforcement
    limits: Mapping[str, int]
    config_sha256: str
    plan_sha256: str | None
    idle: Mapping[str, Json]
    """The output's `egress` of a process that reached for nothing."""
    idle_sha256: str
    details: bytes
    """JSON, without its last bracket and without the request."""
    written: Written | None
    """The request, where nothing of its texts had to be redacted and it may be asked again."""
    intent: Said
    result: Said
    attested: Ahead | None
    """What the call's entries and its attestation say of all this."""
    reserve: Spending

    def fits(self, trip: Trip, owner: Owner, secrets: Secrets) -> bool:
        return (
            self.decision is trip.decision
            and self.plan is trip.plan
            and self.policy_sha256 == trip.policy_sha256
            and self.approval_id == trip.approval_id
            and (self.owner is owner or self.owner == owner)
            and self.secrets == secrets
        )

    def details_with(self, request: Request | None, shadow: Mapping[str, Json] | None) -> bytes:
        """What is kept beside the entry so that a decision can be explained and made again; secrets redacted."""
        clear = None if request is None or self.written is None else self.written.bytes_of(request)
        if clear is not None and shadow is None:
            return b'%b,"request":%b,"request_redacted":false,"shadow":null}' % (self.details, clear)
        asked = None if request is None else request.as_json()
        kept = redacted_request(asked, self.secrets)
        changing = {"request": kept, "request_redacted": kept != asked, "shadow": shadow}
        return b"%b,%b" % (self.details, orjson.dumps(changing, option=orjson.OPT_SORT_KEYS)[1:])


def fixed_of(trip: Trip, ports: Ports) -> Fixed:
    secrets, owner = ports.secrets.known_values(trip.run.run_id), ports.owners.me()
    known = trip.shape.fixed if trip.shape is not None else trip.fixed
    if known is not None and known.fits(trip, owner, secrets):
        return known
    fixed = _make(trip, ports, secrets)
    if trip.plan is not None:
        trip.fixed = fixed
        if trip.shape is not None:
            trip.shape.fixed = fixed
    return fixed


def _make(trip: Trip, ports: Ports, secrets: Secrets) -> Fixed:
    plan, decision = trip.plan, decision_json(trip.decision)
    owner, enforcement = ports.owners.me(), enforcement_json(plan, None, ports.proven)
    limits = (plan.limits if plan is not None else trip.run.limits).as_json()
    policies = tuple(decision["policies"])
    decided = Decided(
        effect=decision["effect"],
        policies=policies,
        policy_sha256=trip.policy_sha256,
        config_sha256=ports.config.digest,
        approval_id=trip.approval_id,
    )
    plan_sha256 = sha256_hex(trip.plan_bytes) if plan is not None else None
    idle = plan.net.as_json() | {"connections": []} if isinstance(plan, ProcessPlan) else {}
    asked, facts = asked_of(trip, secrets), DecisionFacts(effect=decision["effect"], policies=policies)
    executor, in_force = plan.executor if plan is not None else "", enforcement_of(enforcement)
    intent = said_in_intent(asked, decided, owner=owner, executor=executor, enforcement=enforcement, limits=limits)
    result = said_in_result(asked, decided, enforcement)
    again = trip.shape is not None and plan is not None  # what is asked once is cheaper written when it is needed
    return Fixed(
        decision=trip.decision,
        plan=plan,
        policy_sha256=trip.policy_sha256,
        approval_id=trip.approval_id,
        owner=owner,
        secrets=secrets,
        asked=asked,
        decided=decided,
        facts=facts,
        enforcement=enforcement,
        in_force=in_force,
        limits=limits,
        config_sha256=ports.config.digest,
        plan_sha256=plan_sha256,
        idle=idle,
        idle_sha256=digest(idle),
        details=orjson.dumps(_details(trip, ports, secrets, plan_sha256))[:-1],
        written=_written(trip.cedar, secrets) if again else None,
        intent=write_said(intent) if again else Said(intent),
        result=write_said(result) if again else Said(result),
        attested=_attested(in_force, facts, limits) if again else None,
        reserve=reservation_of(plan) if plan is not None else NOTHING,
    )


def asked_of(trip: Trip, secrets: Secrets) -> Asked:
    """A device and a channel are the caller's text, and entries stay for ever."""
    context, (device, channel) = trip.run.context, (trip.run.context.device, trip.run.context.channel)
    if device or channel:
        device, channel = redact_json([device, channel], secrets)
    return Asked(
        call_id=trip.call_id,
        run_id=trip.run.run_id,
        tool=trip.request.tool,
        principal=trip.run.owner.principal,
        door=context.door.value,
        device=device,
        channel=channel,
        session=context.session,
        skill=context.skill,
    )


def _written(request: Request | None, secrets: Secrets) -> Written | None:
    if request is None:
        return None
    said = request.as_json()
    return write_with_holes(request) if redacted_request(said, secrets) is said else None


def _attested(in_force: Enforcement, facts: DecisionFacts, limits: Mapping[str, int]) -> Ahead | None:
    try:
        return write_ahead(in_force, facts, limits)
    except ValueError:
        return None  # what cannot be signed is said by whoever signs it


def _details(trip: Trip, ports: Ports, secrets: Secrets, plan_sha256: str | None) -> dict[str, Json]:
    plan, call = trip.plan, trip.call
    # Kept where a decision made again needs it: most calls name no absolute path.
    place = {"workspace": redact_json(call.workspace, secrets)} if call is not None and names_place(call.input) else {}
    return place | {
        "door": trip.run.context.door.value,
        "executor": plan.executor if plan is not None else None,
        "enforcement": enforcement_json(plan, None, ports.proven),
        "config_sha256": ports.config.digest,
        "policy_sha256": trip.policy_sha256,
        "limits": trip.run.limits.as_json(),
        "decision": decision_json(trip.decision),
        "plan_sha256": plan_sha256,
        "input_sha256": trip.input_sha256,
        "input": redact_json(dict(trip.call.input), secrets) if trip.call is not None else None,
        "facts": redact_json(_facts(trip), secrets),
        "plan": _plan_of(trip.plan_bytes, secrets),
    }


def redacted_request(request: dict[str, Json] | None, secrets: Secrets) -> Json:
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


def _plan_of(plan_bytes: bytes, secrets: Secrets) -> Json:
    """As its bytes where nothing in it has to go, so that it is not read and written once more."""
    if not plan_bytes:
        return None
    if not secrets and _is_clear(plan_bytes):
        return orjson.Fragment(plan_bytes)
    return redact_json(orjson.loads(plan_bytes), secrets)


_is_clear = lru_cache(maxsize=128)(is_clear)


def _facts(trip: Trip) -> Json:
    if trip.facts is None:
        return None
    facts = {name: getattr(trip.facts, name) for name in _FACTS}
    facts["details"] = [list(pair) for pair in trip.facts.details]
    return facts


def egress_mode(plan: Plan | None) -> str:
    if isinstance(plan, WasmPlan):
        return EgressMode.STRICT.value  # a guest has no socket: what it reaches is granted by name
    return plan.net.mode.value if isinstance(plan, ProcessPlan | FetchPlan) else ""


def enforcement_json(plan: Plan | None, execution: Execution | None, proven: Proven | None) -> dict[str, Json]:
    if plan is None:
        return {"backend": "", "egress_mode": "", "guarantees": [], "degraded": [], "proof_id": None}
    late = execution.degraded if execution is not None else ()
    return {
        "backend": plan.backend,
        "egress_mode": egress_mode(plan),
        "guarantees": sorted(g.value for g in plan.guarantees),
        "degraded": [*plan.degraded, *late],
        "proof_id": proven.id_for(plan) if proven is not None else None,
    }


def enforcement_of(value: Mapping[str, Json]) -> Enforcement:
    return Enforcement(
        backend=value.get("backend", ""),
        egress_mode=value.get("egress_mode", ""),
        guarantees=tuple(value.get("guarantees", ())),
        degraded=tuple(value.get("degraded", ())),
        proof_id=value.get("proof_id"),
    )
