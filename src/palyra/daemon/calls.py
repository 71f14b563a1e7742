"""`/v1/calls`: make calls, look at one, cancel it, follow its output.

Rules: an agent sees its own principal's calls and no others: what is not there and what is somebody else's get one
answer. Results of a batch come in the order of its calls. A call that is not waited for is durable before 202 is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import orjson
from starlette.responses import Response

from palyra.daemon import sse
from palyra.daemon.attended import attend
from palyra.daemon.auth import Caller
from palyra.daemon.call_models import CallBody, CallOrBatch, OutcomeShown
from palyra.daemon.feed import Event
from palyra.daemon.live import LiveCall, running_outcome
from palyra.daemon.orders import Order, make_order, unreadable_request
from palyra.daemon.routes import Answer, Asked, Refused, Route, Said, Who, heads_of, not_found
from palyra.daemon.state import State
from palyra.daemon.taking import take
from palyra.errors import Reason, Rejected
from palyra.model.call import is_ulid
from palyra.model.outcome import Outcome, Status
from palyra.model.record import StoredCall
from palyra.protocol.wire import outcome_bytes, restore_outcome

ON_ITS_WAY = frozenset({Status.RUNNING, Status.PENDING_APPROVAL})
SEEN_S = 0.25
"""How long a repeated call that nobody waits for may take to be found the same, or refused."""
_STATUS_OF = {Reason.BUSY: 429, Reason.JOURNAL_DOWN: 503}


async def make(asked: Asked) -> Response:
    given: CallBody | list[CallBody] = asked.body
    state = asked.state
    if isinstance(given, CallBody):
        order = _ordered(asked, given)
        if sse.MEDIA_TYPE in heads_of(asked.request).get("accept", ""):
            return attend(state, order)
        outcome, said = await _begin(state, order)
        return Said(said, status=status_of(outcome))
    if len(given) > state.settings.max_batch:
        raise Refused(
            422,
            "BAD_ARGUMENTS",
            f"A batch has at most {state.settings.max_batch} calls.",
            "Send several requests, or raise daemon.max_batch.",
        )
    shared_run = state.ids.ulid()
    orders = [_ordered(asked, body, shared_run) for body in given]
    ended = await asyncio.gather(*(_begin(state, order) for order in orders))
    content = b"[%s]" % b",".join(said for _, said in ended)
    return Said(content, status=_status_of_all([outcome for outcome, _ in ended]))


def _ordered(asked: Asked, body: CallBody, shared_run: str | None = None) -> Order:
    order = make_order(asked.state, asked.caller, body, shared_run=shared_run)
    if asked.state.tracing is not None and order.request.call_id is not None:
        asked.state.tracing.begun(order.request.call_id, asked.request.headers)
    return order


async def record_unreadable(state: State, caller: Caller, data: bytes) -> None:
    await asyncio.shield(state.calls.begin(unreadable_request(state, caller, data)).task)


async def _begin(state: State, order: Order) -> tuple[Outcome, bytes]:
    """To its end, or, where nobody waits, until it is taken on. The client's own end does not end the call."""
    if order.body.wait:
        call, outcome = await state.calls.make(order.request)
    elif order.body.call_id is not None and await _was_seen(state, order.body.call_id):
        call = state.calls.begin(order.request)  # a refusal is told now: under this id another call is found
        await asyncio.wait({call.task}, timeout=SEEN_S)
        outcome = call.task.result() if call.task.done() else call.running
    elif shortage := state.calls.find_shortage(order.request):  # nothing is accepted, so nothing is written down
        refusal = order.request.refusal or shortage
        call, outcome = await state.calls.make(replace(order.request, refusal=refusal))
    else:
        request = replace(order.request, accepted=True)
        with state.calls.hold_place(request):
            await take(state, order)
        if state.calls.stopping:  # it is durable: the next start begins it
            outcome = running_outcome(request)
            return outcome, _shown(outcome)
        call = state.calls.begin(request)
        await asyncio.sleep(0)
        outcome = call.task.result() if call.task.done() else call.running
    return outcome, call.said if call.said and outcome.attestation else _shown(outcome)


async def _was_seen(state: State, call_id: str) -> bool:
    return is_ulid(call_id) and await state.installation.journal.find_call(call_id) is not None


def _shown(outcome: Outcome) -> bytes:
    """While a call goes on there is no attestation yet, and none is pretended."""
    if not outcome.attestation:
        value = orjson.loads(outcome_bytes(outcome))
        return orjson.dumps(value | {"attestation": None})
    return outcome_bytes(outcome)


def status_of(outcome: Outcome) -> int:
    if outcome.status in ON_ITS_WAY:
        return 202
    return _STATUS_OF.get(outcome.reason, 200) if outcome.status is Status.REFUSED and outcome.reason else 200


def _status_of_all(outcomes: Sequence[Outcome]) -> int:
    """429 or 503 only where nothing else came of it; 202 where something is still on its way."""
    found = {status_of(outcome) for outcome in outcomes}
    if len(found) == 1:
        return found.pop()
    return 202 if 202 in found else 200


async def show(asked: Asked) -> Response:
    outcome = await find_outcome(asked.state, asked.caller, asked.path["call_id"])
    return Said(_shown(outcome))


async def cancel(asked: Asked) -> Response:
    """Answers when it has ended; one that had ended is left as it was."""
    state, call_id = asked.state, asked.path["call_id"]
    live = _live(state, asked.caller, call_id)
    if live is not None:
        outcome = await state.calls.end(live)
    else:
        outcome = await find_outcome(state, asked.caller, call_id)
    return Said(_shown(outcome))


async def follow(asked: Asked) -> Response:
    state, call_id = asked.state, asked.path["call_id"]
    number = sse.resume_number(asked.request)
    heard = state.calls.heard(call_id)
    if heard is not None and may_see(asked.caller, heard.principal):
        return sse.stream_feed(heard.feed, number)
    outcome = await find_outcome(state, asked.caller, call_id)
    return sse.stream(_ended(outcome, number))


async def _ended(outcome: Outcome, number: int) -> AsyncIterator[Event]:
    """Its output is in the outcome; the events of its time are no longer kept."""
    yield Event(number + 1, "outcome", outcome_bytes(outcome))


def may_see(caller: Caller, principal: str) -> bool:
    return caller.operator or caller.principal == principal


def _live(state: State, caller: Caller, call_id: str) -> LiveCall | None:
    live = state.calls.find(call_id)
    return live if live is not None and may_see(caller, live.principal) else None


async def find_outcome(state: State, caller: Caller, call_id: str) -> Outcome:
    """As it stands; `Refused` for what is not there, or not this caller's."""
    heard = state.calls.heard(call_id)
    if heard is not None and may_see(caller, heard.principal):
        return heard.task.result() if heard.task.done() else heard.running
    stored = await state.installation.journal.find_call(call_id) if is_ulid(call_id) else None
    if stored is None or not may_see(caller, stored.principal):
        raise not_found("call")
    if stored.recorded is None:
        return _open_elsewhere(stored)
    try:
        return restore_outcome(stored.outcome, stored.recorded)
    except Rejected as gone:
        raise Refused(410, "GONE", gone.detail, "palyra journal show CALL_ID shows what is left of it.") from None


def _open_elsewhere(stored: StoredCall) -> Outcome:
    return Outcome(call_id=stored.call_id, run_id=stored.run_id, tool=stored.tool, status=Status.RUNNING, success=False)


_ONE = Answer(meaning="The outcome, whatever it is; refusals too.", model=OutcomeShown)
_MADE = OutcomeShown | list[OutcomeShown]
_GONE = Answer(meaning="The call ended long ago; its outcome is no longer kept.")
ROUTES = (
    Route(
        method="POST",
        path="/v1/calls",
        name="make_calls",
        who=Who.AGENT,
        handler=make,
        summary="Make a call, or a batch of calls.",
        body=CallOrBatch,
        unreadable=record_unreadable,
        answers={
            200: Answer(meaning="Outcomes, in the order of the calls; refusals too.", model=_MADE),
            202: Answer(meaning="Accepted and still running, or waiting for a person.", model=_MADE),
            429: Answer(meaning="Refused with BUSY, or too many wrong credentials.", model=_MADE | dict),
            503: Answer(meaning="Refused with JOURNAL_DOWN: nothing can be recorded.", model=_MADE | dict),
        },
        tags=("calls",),
        examples={"echo": {"tool": "palyra.echo", "input": {"hello": "world"}}},
    ),
    Route(
        method="GET",
        path="/v1/calls/{call_id}",
        name="show_call",
        who=Who.AGENT,
        handler=show,
        summary="The state of a call.",
        answers={200: _ONE, 410: _GONE},
        tags=("calls",),
    ),
    Route(
        method="POST",
        path="/v1/calls/{call_id}/cancel",
        name="cancel_call",
        who=Who.AGENT,
        handler=cancel,
        summary="End a call; the answer is its outcome.",
        answers={200: _ONE, 410: _GONE},
        tags=("calls",),
    ),
    Route(
        method="GET",
        path="/v1/calls/{call_id}/stream",
        name="follow_call",
        who=Who.AGENT,
        handler=follow,
        summary="Its output as it comes, then its outcome; resumable with Last-Event-ID.",
        answers={
            200: Answer(meaning="Events `output`, `gap`, `outcome`.", media_type=sse.MEDIA_TYPE),
            410: _GONE,
        },
        tags=("calls",),
    ),
)
