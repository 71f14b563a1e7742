"""Which labels a call gives to its run, and setting them before the call runs.

Rules: a label is about what a call could do, not what it did: a call that may read a secret has used one, a call that
may reach a host has received outside content. It is durable before the call's intent, so that no crash loses it. A
run that ends with its one call needs none.

Not here: what policy makes of labels (policy/bundles), who is judged again because of one (since).
"""

from __future__ import annotations

from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Trip
from palyra.model.run_facts import RunLabel
from palyra.model.tool import Capability

_NONE: frozenset[RunLabel] = frozenset()
_SECRET = frozenset({RunLabel.HAS_USED_SECRET})
_OUTSIDE = frozenset({RunLabel.HAS_RECEIVED_OUTSIDE_CONTENT})


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


async def mark_run(trip: Trip, ports: Ports) -> None:
    """Raises StateError when it cannot be durable, so that nothing runs."""
    new = labels_of(trip) - trip.run_facts.labels
    if new and trip.run.scope is not RunScope.CALL:
        await ports.run_facts.mark(trip.run.owner, trip.call_id, new)
