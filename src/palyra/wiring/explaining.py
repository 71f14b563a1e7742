"""Why a call was or would be decided as it is, for every door: from its record, or assessed as if it were made.

Rules: nothing runs and nothing is written; a call of the journal is decided again from its recorded facts by the
policies of now; one that has not been made is assessed as it would be, and flags and settings are tried on it.

Not here: the explanation itself (policy/explain, engine/advice), how a door shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from palyra.canon import Json
from palyra.engine.advice import advise
from palyra.engine.hints import about_tool
from palyra.engine.replay import RecordedDecision, read_decision
from palyra.engine.trip import CallRequest
from palyra.errors import Reason, Rejected
from palyra.model.outcome import Status
from palyra.policy.explain import Change, Explanation, change_json, explanation_json
from palyra.values import dataclass
from palyra.wiring.policy_acts import explain_request

if TYPE_CHECKING:
    from palyra.model.record import StoredCall
    from palyra.wiring.embedded import Installation


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything there is to say."""

    explained: Explanation | None = None
    """None when the call never reached policy."""
    refusal: Rejected | None = None
    """What stops the call outside policy: its shape, its budget, or a host that cannot enforce it."""
    tried: tuple[Change, ...] = ()
    """Settings that would bring it before policy."""
    then: RecordedDecision | None = None
    """Of a journaled call: what was decided then."""

    def as_json(self) -> dict[str, Json]:
        refusal, then = self.refusal, self.then
        value: dict[str, Json] = (
            explanation_json(self.explained) if self.explained else {"changes": [*map(change_json, self.tried)]}
        )
        refused = refusal and {"reason": refusal.reason.value, "message": refusal.detail, "hint": refusal.hint}
        recorded = then and {"effect": then.effect, "policies": list(then.policies), "exact": then.exact}
        return value | {"refused": refused, "recorded": recorded}


WAITS = (
    "palyra journal tail lists calls. Of one that waits for a person, palyra approvals list names the request, and "
    "palyra approvals show ID the policies that ask."
)


async def explain_recorded(installation: Installation, call_id: str) -> Told:
    """A journaled call, decided again from its recorded facts by the policies of now."""
    stored = await installation.ports.journal.find_call(call_id)
    if stored is None:
        return Told(refusal=Rejected(Reason.BAD_ARGUMENTS, f"The journal has no decided call {call_id[:40]!r}.", WAITS))
    return explain_stored(installation, stored)


def explain_stored(installation: Installation, stored: StoredCall) -> Told:
    try:
        then = read_decision(stored.details)
    except ValueError as error:
        return Told(refusal=Rejected(Reason.INTERNAL, f"{error}.", "Run: palyra journal verify"))
    if then is None:
        outcome = orjson.loads(stored.outcome) if stored.outcome else {}
        reason = Reason(stored.reason) if stored.reason else Reason.INTERNAL
        return Told(refusal=Rejected(reason, outcome.get("message") or "It never reached policy.", outcome.get("hint")))
    # An exception binds the record's facts: one that redaction changed binds another call, or none.
    call_id = stored.call_id if stored.status == Status.REFUSED and then.exact else ""
    policies = frozenset(then.policies)
    explained = explain_request(installation, then.request, then.details, call_id=call_id, then=policies)
    return Told(explained=explained, then=then)


async def explain_imagined(installation: Installation, request: CallRequest) -> Told:
    """A call that has not been made, with everything that was tried to let it through."""
    trip, refusal = await installation.engine.assess(request)
    if refusal is not None:
        refusal.hint = about_tool(refusal.hint, request.tool)
    tried = await advise(installation.engine, request, trip, refusal)
    if trip.cedar is None or trip.facts is None:
        return Told(refusal=refusal, tried=tried)
    explained = explain_request(installation, trip.cedar, trip.facts.details, tried)
    return Told(explained=explained, refusal=refusal if explained.kind in ("allowed", "ask") else None)
