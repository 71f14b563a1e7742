"""Calls that nobody waits for: written down before they are acknowledged, begun again after a crash.

Rules: who had a token then must still have one that holds; a call that began is never begun twice (wiring/taken); one
that has waited for a day is refused: whoever asked for it has long since done something else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from palyra.daemon.auth import Caller, Proof
from palyra.daemon.call_models import CallBody
from palyra.daemon.lapsing import refusal_of, token_behind
from palyra.daemon.orders import Order, make_order
from palyra.daemon.state import State
from palyra.errors import PalyraError, Reason, Rejected
from palyra.wiring.taken import TakenCall

log = logging.getLogger("palyra.daemon")
LATEST_MS = 24 * 3600 * 1000


async def take(state: State, order: Order) -> None:
    """Durable when this returns. `StateError` when it cannot be: then nothing was taken on."""
    caller, request = order.caller, order.request
    kept = {
        "body": order.body.model_dump(exclude_unset=True) | {"call_id": request.call_id},
        "caller": {
            "principal": caller.principal,
            "operator": caller.operator,
            "proof": caller.proof.value,
            "workspace": caller.workspace,
            "credential_id": token_behind(caller),
        },
        "run_id": request.run.run_id,
    }
    assert request.call_id is not None, "a door gives every call its id"
    is_new = await state.taken.take(
        TakenCall(
            call_id=request.call_id,
            principal=str(request.run.context.principal),
            request=orjson.dumps(kept),
            taken_unix_ms=state.clock.now_unix_ms(),
        )
    )
    if is_new:
        state.ends.was_taken(request.call_id, principal=str(request.run.context.principal))


async def begin_taken(state: State) -> int:
    """What was taken on and never began, begun now; how many there were."""
    left = await state.taken.left()
    for taken in left:
        try:
            kept: Mapping[str, Any] = orjson.loads(taken.request)
            order = _order(state, kept, taken_unix_ms=taken.taken_unix_ms)
        except (PalyraError, ValueError, KeyError, TypeError):
            log.exception("call %s was accepted and cannot be started", taken.call_id)
            continue
        state.ends.was_taken(taken.call_id, principal=str(order.request.run.context.principal))
        state.calls.begin(order.request)
    return len(left)


def _order(state: State, kept: Mapping[str, Any], *, taken_unix_ms: int) -> Order:
    caller = Caller(**(dict(kept["caller"]) | {"proof": Proof(kept["caller"]["proof"])}))
    order = make_order(state, caller, CallBody(**kept["body"]), shared_run=kept["run_id"])
    refusal = refusal_of(state, caller.credential_id) if caller.credential_id else None
    if state.clock.now_unix_ms() - taken_unix_ms > LATEST_MS:
        refusal = Rejected(Reason.BUSY, "The daemon was down for too long to start this call now.", "Call again.")
    refusal = order.request.refusal or refusal
    return replace(order, request=replace(order.request, refusal=refusal, accepted=True))
