"""`/v1/runs`: make a run that narrows what is configured, look at it, end it."""

from __future__ import annotations

from starlette.responses import Response

from palyra.canon import Json
from palyra.config.tool_call import EGRESS_ALIASES
from palyra.daemon.call_models import RunBody, RunShown
from palyra.daemon.calls import may_see
from palyra.daemon.orders import principal_of, workspace_of
from palyra.daemon.routes import Answer, Asked, Refused, Route, Who, json_response, not_found
from palyra.daemon.state import State
from palyra.errors import Reason, Rejected
from palyra.model.call import Door, is_ulid
from palyra.model.narrowing import NAMES, parse_narrowing
from palyra.model.outcome import BudgetView
from palyra.wiring.run_terms import Terms, check_narrows


async def make(asked: Asked) -> Response:
    body: RunBody = asked.body
    state, caller = asked.state, asked.caller
    if body.principal not in (None, caller.principal) and not caller.operator:
        raise Rejected(Reason.CAPABILITY_DENIED, "An agent can only make runs of its own.", "Leave principal out.")
    config = state.installation.config
    limits = body.limits.model_dump(exclude_none=True) if body.limits is not None else {}
    egress = EGRESS_ALIASES.get(body.egress, body.egress) if body.egress is not None else None
    terms = Terms(
        run_id=body.run_id or state.ids.ulid(),
        principal=principal_of(caller, body.principal),
        workspace=workspace_of(config, caller, body.workspace),
        created_unix_ms=state.clock.now_unix_ms(),
        limits=limits,
        egress=egress,
        block_all=body.egress == "block_all",
        tier=None if body.tier == "auto" else body.tier,
        calls_max=body.calls_max,
        most=body.budget.model_dump(exclude_none=True) if body.budget is not None else {},
        device=body.device,
        channel=body.channel,
        narrowing=parse_narrowing(body.model_dump(include=set(NAMES))).as_json(),
    )
    check_narrows(config, terms)
    terms.run(config, door=Door.HTTP)  # what cannot be a run is refused before it is kept
    if not await state.run_terms.keep(terms):
        raise Refused(409, "RUN_ID_REUSED", "A run with this id already exists.", "Leave run_id out.")
    return json_response(await _shown(state, terms), status=201)


async def show(asked: Asked) -> Response:
    return json_response(await _shown(asked.state, _find(asked)))


async def end(asked: Asked) -> Response:
    """Cancels what is under way in it and ends its background processes; again, it changes nothing."""
    state, terms = asked.state, _find(asked)
    ended = await state.run_terms.end(terms.run_id, by=asked.caller.principal) or terms
    await state.installation.engine.end_run(terms.run(state.installation.config, door=Door.HTTP))
    return json_response(await _shown(state, ended))


def _find(asked: Asked) -> Terms:
    run_id = asked.path["run_id"]
    terms = asked.state.run_terms.find(run_id) if is_ulid(run_id) else None
    if terms is None or not may_see(asked.caller, terms.principal):
        raise not_found("run")
    return terms


async def _shown(state: State, terms: Terms) -> dict[str, Json]:
    run = terms.run(state.installation.config, door=Door.HTTP)
    known = state.installation.runs.find(terms.run_id)
    fresh = BudgetView(calls_max=run.calls_max, attempts_max=run.attempts_max)
    return {
        "run_id": terms.run_id,
        "principal": terms.principal,
        "workspace": run.workspace,
        "limits": run.limits.as_json(),
        "egress": run.egress.value,
        "tier": run.tier.value,
        "narrowing": run.narrowing.as_json(),
        "created_at_unix_ms": terms.created_unix_ms,
        "ended_at_unix_ms": terms.ended_unix_ms,
        "budget": (known.budget if known is not None else fresh).as_json(),
    }


_RUN = Answer(meaning="The run: what it narrows, and its budget.", model=RunShown)
ROUTES = (
    Route(
        method="POST",
        path="/v1/runs",
        name="make_run",
        who=Who.AGENT,
        handler=make,
        summary="Make a run; it narrows what is configured, never widens it.",
        body=RunBody,
        answers={201: _RUN},
        tags=("runs",),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}",
        name="show_run",
        who=Who.AGENT,
        handler=show,
        summary="A run and what it has used.",
        answers={200: _RUN},
        tags=("runs",),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/end",
        name="end_run",
        who=Who.AGENT,
        handler=end,
        summary="End a run: its calls are cancelled, its background processes ended.",
        answers={200: _RUN},
        tags=("runs",),
    ),
)
