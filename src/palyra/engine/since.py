"""What changed while a call waited for its turn: a decision from before does not carry it over.

Rules: a call that waited does not begin under policies that are no longer in use, as one that was sent to a node does
not (cluster/dispatching), and is decided once more when it waited into another hour, which policies may look at. A call
that reaches out is decided once more if its run was marked meanwhile, whether it waited or not: sent together with one
that uses a secret, it would go behind it with a decision from before.

Not here: whose turn it is (turns), which labels a call gives (labels).
"""

from __future__ import annotations

from palyra.engine.decision import hour_of
from palyra.engine.labels import labels_of, reaches_out
from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.grant import Ask, Deny
from palyra.model.run_facts import RunFacts
from palyra.policy.decide import decide_each
from palyra.policy.request import Request, ask_again


def check_decision_since(trip: Trip, ports: Ports) -> None:
    """Of a call that waited, in its turn, before it is opened."""
    if ports.policies.current().digest != trip.policy_sha256:
        raise Rejected(Reason.POLICY_DENIED, "The policies changed while the call waited for its turn.", "Call again.")
    if trip.cedar is not None and trip.cedar.context["hour"] != hour_of(ports):
        _decide_again(trip.cedar, trip, ports, trip.run_facts)


def check_marked_since(trip: Trip, ports: Ports) -> None:
    """In its turn, before it is opened. Raises Rejected where policy no longer says what it said."""
    if trip.run.scope is RunScope.CALL or trip.cedar is None or not reaches_out(trip):
        return
    facts = ports.run_facts.read(trip.run.owner)
    if not facts.labels <= trip.run_facts.labels | labels_of(trip):
        _decide_again(trip.cedar, trip, ports, facts)


def _decide_again(before: Request, trip: Trip, ports: Ports, facts: RunFacts) -> None:
    used, most = int(before.context["calls_used"]), int(before.context["calls_max"])
    again = ask_again(before, calls_used=used, calls_max=most, hour=hour_of(ports), run=facts)
    details, ends = (trip.facts.details, trip.facts.ends) if trip.facts is not None else ((), ())
    _, decision = decide_each(ports.policies.current(), again, ends, details=details)
    if isinstance(decision, Deny):
        raise Rejected(decision.reason, decision.message, decision.hint)
    if isinstance(decision, Ask) and not isinstance(trip.decision, Ask):
        raise Rejected(
            Reason.NOT_APPROVED,
            "What happened while the call waited for its turn makes policy ask for a person's approval.",
            "Repeat the call to ask.",
        )
