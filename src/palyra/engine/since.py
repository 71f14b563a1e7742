"""What changed while a call waited for its turn: a decision from before does not carry it over.

Rules: a call that waited does not begin under policies that are no longer in use, as one that was sent to a node does
not (cluster/dispatching). A call that reaches out is decided once more if its run was marked meanwhile, whether it
waited or not: sent together with one that uses a secret, it would go behind it with a decision from before.

Not here: whose turn it is (turns), which labels a call gives (labels).
"""

from __future__ import annotations

from palyra.engine.labels import labels_of, reaches_out
from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.grant import Ask, Deny
from palyra.policy.decide import decide
from palyra.policy.request import ask_again


def check_policies_since(trip: Trip, ports: Ports) -> None:
    """In its turn, before it is opened."""
    if ports.policies.current().digest != trip.policy_sha256:
        raise Rejected(Reason.POLICY_DENIED, "The policies changed while the call waited for its turn.", "Call again.")


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
