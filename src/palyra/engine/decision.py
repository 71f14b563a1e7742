"""Step 4 of the walk: the configuration's own lists, then Cedar, and what it says of this call.

Rules: policy is asked with what the run has left and has done at this moment; a call that was asked before gets the
same answer only while no policy can see a difference; a candidate bundle is heard beside, and changes nothing.

Not here: what a policy may look at (policy/request), what it says (policy/decide), asking a person (engine/approval).
"""

from __future__ import annotations

from palyra.budget.ledger import Ledger
from palyra.config.schema import Config
from palyra.engine.listing import is_named
from palyra.engine.narrowing import check_narrowing
from palyra.engine.ports import Ports, Standing
from palyra.engine.roads import compare_candidate
from palyra.engine.runs import RunScope
from palyra.engine.shapes import Asked
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.grant import Decision, Deny
from palyra.model.outcome import BudgetView
from palyra.model.run_facts import NO_FACTS
from palyra.policy.bundle import PolicyBundle
from palyra.policy.decide import decide_each
from palyra.policy.request import Request, ask_again, build_request
from palyra.policy.scan import PolicyError


def authorise(trip: Trip, ports: Ports, standing: Standing) -> None:
    """4 — the configuration's own lists, then Cedar. A denial is raised with the policy's code."""
    bundle = read_policies(ports, standing)
    trip.policy_sha256, trip.policy_stale = bundle.digest, stale_sentence(bundle)
    trip.run_looks_new = standing.budget is None
    # A run that ends with its one call is never marked, and one that nobody knows has made no calls.
    fresh = standing.budget is None and trip.run.scope is RunScope.CALL
    trip.run_facts = NO_FACTS if fresh else standing.facts or ports.run_facts.read(trip.run.owner)
    before = trip.shape.asked if trip.shape is not None else None
    trip.cedar = _request(trip, ports, standing.budget, before)
    trip.decision = decision = _decide(trip, bundle, before)
    if ports.candidate is not None:
        trip.shadow = compare_candidate(ports.candidate, trip.cedar, decision)
    if isinstance(decision, Deny):
        trip.is_liftable = decision.reason is not Reason.POLICY_ERROR and _is_liftable(bundle, trip.cedar, decision)
        raise Rejected(decision.reason, decision.message, decision.hint)


def read_policies(ports: Ports, standing: Standing | None = None) -> PolicyBundle:
    """Return the policies in use. Raise Rejected where their files cannot be read."""
    try:
        if standing is not None and standing.policy_is_read:
            return ports.policies.at(standing.policy)
        return ports.policies.current()
    except PolicyError as error:
        raise Rejected(
            Reason.POLICY_ERROR,
            "The policy files cannot be read, so nothing runs.",
            "An operator repairs them: palyra policy check names the file.",
        ) from error


def stale_sentence(bundle: PolicyBundle) -> str | None:
    """Return what every outcome says while the policy files cannot be used; not which file, which is no caller's."""
    if not bundle.stale:
        return None
    return (
        "The policy files need repair: they cannot be used as they are, so the last that could stay in force "
        f"({bundle.digest[:12]}). palyra policy check names the fault."
    )


def _is_liftable(bundle: PolicyBundle, request: Request, decision: Deny) -> bool:
    from palyra.policy.exceptions import is_liftable  # only for what is refused

    return is_liftable(bundle, request, decision.policies)


def hour_of(ports: Ports) -> int:
    """Of now, UTC: what policies see as `context.hour`."""
    return ports.clock.now_unix_ms() // 3_600_000 % 24


def _request(trip: Trip, ports: Ports, budget: Ledger | None, before: Asked | None) -> Request:
    """The lists follow from the call's words and the configuration: one that was asked before is on them."""
    assert trip.tool is not None
    assert trip.call is not None
    assert trip.facts is not None
    used, maximum = (budget.calls_used, budget.calls_max) if budget else (0, trip.run.calls_max)
    # Of now, not of when it came: a call may have waited for a person until long after the shift that permits it.
    hour = hour_of(ports)
    if before is not None:
        run_id = trip.run.run_id
        return ask_again(before.cedar, run_id=run_id, calls_used=used, calls_max=maximum, hour=hour, run=trip.run_facts)
    _check_lists(ports.config, trip)
    check_narrowing(trip)
    return build_request(
        trip.call,
        trip.tool.spec,
        trip.facts,
        budget=BudgetView(calls_used=used, calls_max=maximum),
        approved=False,
        hour=hour,
        run=trip.run_facts,
        roles=ports.config.principals.roles_of(str(trip.call.context.principal)),
    )


def _decide(trip: Trip, bundle: PolicyBundle, before: Asked | None) -> Decision:
    """The same answer while no policy can see a difference."""
    assert trip.cedar is not None
    assert trip.facts is not None
    seen = bundle.cedar.pick(trip.cedar.context)
    if before is not None and before.bundle is bundle and before.seen == seen:
        return before.decision
    trip.cedar, decision = decide_each(bundle, trip.cedar, details=trip.facts.details)
    if trip.shape is not None:
        trip.shape.asked = Asked(cedar=trip.cedar, bundle=bundle, seen=seen, decision=decision)
    return decision


def _check_lists(config: Config, trip: Trip) -> None:
    assert trip.tool is not None
    spec, lists = trip.tool.spec, config.tool_call
    if not is_named(spec, lists.allowed_tools):
        raise Rejected(
            Reason.POLICY_DENIED, f"{spec.name} is not in allowed_tools.", "Add it to allowed_tools in [tool_call]."
        )
    missing = sorted(c.value for c in spec.capabilities if c.value not in lists.allowed_capabilities)
    if missing:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            f"{spec.name} needs the capability {missing[0]}, which is not allowed here.",
            "Add it to allowed_capabilities in [tool_call].",
        )
