"""`/console/calls` and `/console/runs`: lists that are found by a question, a call with everything recorded of it."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from palyra.daemon.console.call_view import call_view
from palyra.daemon.console.making import form, page, then, to_the
from palyra.daemon.console.overview import spent_of
from palyra.daemon.console.plots import both, timeline
from palyra.daemon.console.rendering import render
from palyra.daemon.operators import calls as acts
from palyra.daemon.operators import runs as run_acts
from palyra.daemon.operators.answering import NextPage, calls_of, installed, journal_of
from palyra.daemon.routes import Asked
from palyra.model.outcome import Status
from palyra.wiring.explaining import explain_stored
from palyra.wiring.journal_desk import call_json
from palyra.wiring.runs import LAST

CALLS_OF_RUN = 200
STATUSES = ("open", *(status.value for status in Status if status is not Status.RUNNING))
FILTERS = ("principal", "tool", "status", "reason", "run_id", "text")


class CallsPage(acts.WhichCalls):
    said: str = ""


class RunsPage(NextPage):
    said: str = ""


async def calls_page(asked: Asked) -> Response:
    query: CallsPage = asked.query
    desk = calls_of(asked)
    given = {name: value for name in FILTERS if (value := getattr(query, name))}
    under_way = desk.under_way() if query.before is None and set(given) <= {"status"} else ()
    only_open = query.status == "open"
    lines, following = ((), None) if only_open else await _ended(asked, query)
    return render(
        asked,
        "calls.html",
        section="calls",
        query=query,
        given=given,
        statuses=STATUSES,
        under_way=under_way if only_open or not given else (),
        lines=lines,
        next=following,
    )


async def _ended(asked: Asked, query: CallsPage) -> Any:
    return await calls_of(asked).ended(query.question(), count=query.count, before=query.before)


async def call_page(asked: Asked) -> Response:
    stored = acts.stored_call(asked)
    record = call_json(stored, journal_of(asked).of_call(stored.call_id))
    view = call_view(record, stored.tool, stored.reason)
    told = (await asyncio.to_thread(explain_stored, installed(asked), stored)).as_json() if stored.details else None
    key = installed(asked).writer.home.verifier.vkey
    title, steps = "The call in time", view.steps
    drawn = both(lambda paper: timeline(steps, title=title, plot_id="steps", paper=paper)) if steps else None
    return render(asked, "call.html", section="calls", it=view, told=told, drawn=drawn, record=record, key=key)


async def runs_page(asked: Asked) -> Response:
    query: RunsPage = asked.query
    found = installed(asked).runs.list(before=query.before or LAST, count=query.count)
    return render(
        asked,
        "runs.html",
        section="runs",
        runs=[(run, {one.name: one for one in spent_of(run)}) for run in found],
        next=found[-1].run_id if len(found) == query.count else None,
    )


async def run_page(asked: Asked) -> Response:
    run = run_acts.known_run(asked)
    lines = calls_of(asked).of_run(run.run_id, count=CALLS_OF_RUN)
    return render(
        asked,
        "run.html",
        section="runs",
        run=run,
        spent=spent_of(run),
        budget=run.budget.as_json(),
        reserved=run.reserved.as_json(),
        lines=lines,
        most=CALLS_OF_RUN,
    )


ROUTES = (
    page("/calls", calls_page, name="calls", says="Calls, the newest first.", query=CallsPage),
    page("/calls/{id}", call_page, name="call", says="One call: decision, plan, output, egress, receipt."),
    form("/calls/{id}/cancel", then(acts.cancel_call, to_the("calls", "id", said="cancelled")), name="cancel_call",
         says="End a running call."),
    page("/runs", runs_page, name="runs", says="Runs and their budgets.", query=RunsPage),
    page("/runs/{id}", run_page, name="run", says="One run: its budget and its calls."),
    form("/runs/{id}/extend", then(run_acts.extend_run, to_the("runs", "id", said="extended")), name="extend_run",
         says="Give it more.", body=run_acts.Extending),
    form("/runs/{id}/end", then(run_acts.end_run, to_the("runs", "id", said="run_ended")), name="end_run",
         says="End it: no more calls, and what is under way is ended."),
)  # fmt: skip
