"""What changed while a call waited for its turn: a decision from before does not carry it over.

Rules: a call that waited does not begin under policies that are no longer in use, as one that was sent to a node does
not (cluster/dispatching). A call that waited, or beside which a writer of its run ended, is assessed once more: `git
add` queued behind `find -exec cp … .git` obeyed settings that nobody had looked at. A call that reaches out is decided
once more if its run was marked meanwhile, whether it waited or not: sent together with one that uses a secret, it would
go behind it with a decision from before.

Not here: whose turn it is (turns), which labels a call gives (labels).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from palyra.engine.decision import hour_of, read_policies
from palyra.engine.labels import labels_of, reaches_out
from palyra.engine.ports import Ports
from palyra.engine.runs import RunScope
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.model.grant import Ask, Deny
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.policy.decide import decide_each
from palyra.policy.request import Request, ask_again

ASKS_NOW = "What happened while the call waited for its turn makes policy ask for a person's approval."
Assess = Callable[[Trip, frozenset[RunLabel]], Awaitable[None]]
"""Steps 1 to 6, without the labels that the call itself has given to its run."""


async def assess_again(trip: Trip, ports: Ports, assess: Assess) -> None:
    """In its turn, before it is opened. Raises Rejected where it would not have come this far now."""
    if read_policies(ports).digest != trip.policy_sha256:
        raise Rejected(Reason.POLICY_DENIED, "The policies changed while the call waited for its turn.", "Call again.")
    permission = trip.permission
    await assess(trip, labels_of(trip) - trip.run_facts.labels)
    if permission is None:
        if isinstance(trip.decision, Ask):
            raise Rejected(Reason.NOT_APPROVED, ASKS_NOW, "Repeat the call to ask.")
    elif isinstance(trip.decision, Ask):
        from palyra.engine.approval import check_unchanged

        check_unchanged(trip, ports, permission.question)
    else:
        trip.permission = trip.approval_id = None


def check_marked_since(trip: Trip, ports: Ports) -> None:
    """In its turn, before it is opened. Raises Rejected where policy no longer says what it said."""
    if trip.run.scope is RunScope.CALL or trip.cedar is None or not reaches_out(trip):
        return
    facts = ports.run_facts.read(trip.run.owner)
    if not facts.labels <= trip.run_facts.labels | labels_of(trip):
        _decide_again(trip.cedar, trip, ports, facts)


def _decide_again(before: Request, trip: Trip, ports: Ports, facts: RunFacts) -> None:
    used, most = int(before.context["calls_used"]), int(before.context["calls_max"])
    again = ask_again(before, run_id=trip.run.run_id, calls_used=used, calls_max=most, hour=hour_of(ports), run=facts)
    details = trip.facts.details if trip.facts is not None else ()
    _, decision = decide_each(read_policies(ports), again, details=details)
    if isinstance(decision, Deny):
        raise Rejected(decision.reason, decision.message, decision.hint)
    if isinstance(decision, Ask) and not isinstance(trip.decision, Ask):
        raise Rejected(Reason.NOT_APPROVED, ASKS_NOW, "Repeat the call to ask.")
