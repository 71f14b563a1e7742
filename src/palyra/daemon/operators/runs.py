"""`/console/v1/runs`: what runs have used of their budgets, more of it from an operator, and their end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Listed, Maybe, NextPage, change, get, installed
from palyra.daemon.routes import AnswerModel, Asked, Model, Refused, not_found
from palyra.model.budget import Spending
from palyra.wiring import ending
from palyra.wiring.runs import LAST, RunView

Amount = Annotated[Annotated[int, Field(ge=0, le=1 << 50)] | None, Maybe]


class RunBudget(AnswerModel):
    run_id: str
    principal: str
    workspace: str
    created_at_unix_ms: int
    ended_at_unix_ms: int | None
    budget: dict[str, int | None]
    reserved: dict[str, int | None]


class Extending(Model):
    """By how much more; what is left out stays."""

    calls: Amount = None
    attempts: Amount = None
    wall_us: Amount = None
    cpu_us: Amount = None
    output_bytes: Amount = None
    egress_bytes: Amount = None
    fuel: Amount = None


async def list_runs(asked: Asked) -> Json:
    query: NextPage = asked.query
    found = installed(asked).runs.list(before=query.before or LAST, count=query.count)
    following = found[-1].run_id if len(found) == query.count else None
    return {"items": [run.as_json() for run in found], "next": following}


def known_run(asked: Asked) -> RunView:
    run = installed(asked).runs.find(asked.path["id"])
    if run is None:
        raise not_found("run")
    return run


async def show_run(asked: Asked) -> Json:
    return known_run(asked).as_json()


async def extend_run(asked: Asked) -> Json:
    body: Extending = asked.body
    given = {name: amount or 0 for name, amount in body.model_dump().items()}
    if not any(given.values()):
        raise Refused(422, "BAD_ARGUMENTS", "Nothing is given.", "Give an amount to extend by: calls, wall_us …")
    calls, attempts = given.pop("calls"), given.pop("attempts")
    run = known_run(asked)
    extended = await installed(asked).runs.extend(
        run.run_id, by=asked.caller.principal, calls=calls, attempts=attempts, more=Spending(**given)
    )
    return extended.as_json()


async def end_run(asked: Asked) -> Json:
    ended = await ending.end_run(installed(asked), asked.path["id"], by=asked.caller.principal)
    if ended is None:
        raise not_found("run")
    return ended.as_json()


ROUTES = (
    get("/runs", list_runs, name="list_runs", says="Runs, the newest first.", model=Listed[RunBudget], query=NextPage),
    get("/runs/{id}", show_run, name="show_run_budget", says="What a run has used and may use.", model=RunBudget),
    change("/runs/{id}/extend", extend_run, name="extend_run", says="Raise a run's limits.",
           model=RunBudget, body=Extending),
    change("/runs/{id}/end", end_run, name="end_any_run",
           says="End a run: it takes no more calls, its calls are cancelled, its background processes ended.",
           model=RunBudget),
)  # fmt: skip
