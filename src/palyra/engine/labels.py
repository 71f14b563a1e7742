"""Which labels a call gives to its run, and setting them before the call runs.

Rules: a label is about what a call could do, not what it did: a call that may read a secret has used one, a call that
may reach a host has received outside content. It is durable before the call's intent, so that no crash loses it. A
call that reaches out is decided once more when its turn has come, if the run was marked meanwhile: sent together with
one that uses a secret, it would wait behind it with a decision from before. A run that ends with its one call needs
none. Not here: what policy makes of labels (policy/bundles).
"""

from __future__ import annotations

from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.grant import Ask, Deny
from palyra.model.run_facts import RunLabel
from palyra.model.tool import Capability
from palyra.policy.decide import decide
from palyra.policy.request import ask_again


def reaches_out(trip: Trip) -> bool:
    assert trip.tool is not None
    assert trip.facts is not None
    return Capability.NETWORK in trip.tool.spec.capabilities or trip.facts.network


def labels_of(trip: Trip) -> frozenset[RunLabel]:
    assert trip.tool is not None
    assert trip.facts is not None
    secrets = trip.guest is not None and trip.guest.skill is not None and trip.guest.skill.grants.secrets
    labels = _SECRET if Capability.SECRETS_READ in trip.tool.spec.capabilities or secrets else _NONE
    return labels | _OUTSIDE if reaches_out(trip) else labels


_NONE: frozenset[RunLabel] = frozenset()
_SECRET = frozenset({RunLabel.HAS_USED_SECRET})
_OUTSIDE = frozenset({RunLabel.HAS_RECEIVED_OUTSIDE_CONTENT})


async def mark_run(trip: Trip, ports: Ports) -> None:
    """Raises StateError when it cannot be durable, so that nothing runs."""
    new = labels_of(trip) - trip.run_facts.labels
    if new and trip.run.scope is not RunScope.CALL:
        await ports.run_facts.mark(trip.run.owner, trip.call_id, new)


def check_marked_since(trip: Trip, ports: Ports) -> None:
    """In its turn, before it is opened. Raises Rejected where policy no longer says what it said."""
    if trip.run.scope is RunScope.CALL or trip.cedar is None or not reaches_out(trip):
        return
    facts = ports.run_facts.read(trip.run.owner)
    if facts.labels <= trip.run_facts.labels | labels_of(trip):
        return
    seen = trip.cedar.context
    again = ask_again(
        trip.cedar,
        calls_used=int(seen["calls_used"]),
        calls_max=int(seen["calls_max"]),
        hour=int(seen["hour"]),
        run=facts,
    )
    decision = decide(ports.policies.current(), again, details=trip.facts.details if trip.facts is not None else ())
    if isinstance(decision, Deny):
        raise Rejected(decision.reason, decision.message, decision.hint)
    if isinstance(decision, Ask) and not isinstance(trip.decision, Ask):
        raise Rejected(
            Reason.NOT_APPROVED,
            "What this run did while the call waited for its turn makes policy ask for a person.",
            "Repeat the call to ask.",
        )
