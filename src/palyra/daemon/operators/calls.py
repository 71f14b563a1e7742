"""`/console/v1/calls`: calls of every principal, under way and ended; one with its record; its output as plain text."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from pydantic import Field
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.operators.answering import (
    PREFIX,
    Count,
    Listed,
    Maybe,
    Place,
    Word,
    calls_of,
    change,
    get,
    installed,
    journal_of,
)
from palyra.daemon.operators.journal import JournalEntry
from palyra.daemon.routes import Answer, AnswerModel, Asked, Model, Refused, Route, Who, not_found
from palyra.journal.search import Question
from palyra.model.call import is_ulid
from palyra.model.record import StoredCall
from palyra.wiring.journal_desk import call_json

TEXT = "text/plain; charset=utf-8"


class CallLine(AnswerModel):
    call_id: str
    run_id: str
    tool: str
    principal: str
    status: str
    reason: str | None
    at_unix_ms: int
    index: int | None
    wall_us: int | None
    approval_id: str | None
    kept: bool


class CallRecord(AnswerModel):
    call_id: str
    run_id: str
    principal: str
    status: str
    entries: list[JournalEntry]
    outcome: dict[str, Json] | None
    details: dict[str, Json] | None
    receipt: dict[str, Json] | None


class Cancelled(AnswerModel):
    call_id: str
    cancelled: bool


class WhichCalls(Model):
    before: Annotated[Place | None, Maybe] = None
    count: Count = 50
    principal: Word = ""
    run_id: Word = ""
    tool: Word = ""
    status: Word = ""
    """`open` for those under way."""
    reason: Word = ""
    text: Word = ""

    def question(self) -> Question:
        names = "principal run_id tool status reason text".split()
        return Question(**{name: getattr(self, name) for name in names})


class WhichStream(Model):
    stream: Annotated[Literal["stdout", "stderr", "result"], Field(description="Which part of the output.")] = "stdout"


async def list_calls(asked: Asked) -> Json:
    query: WhichCalls = asked.query
    desk = calls_of(asked)
    if query.status == "open":
        return {"items": [line.as_json() for line in desk.under_way()[: query.count]], "next": None}
    lines, following = await desk.ended(query.question(), count=query.count, before=query.before)
    return {"items": [line.as_json() for line in lines], "next": following}


def stored_call(asked: Asked) -> StoredCall:
    call_id = asked.path["id"]
    stored = journal_of(asked).call(call_id) if is_ulid(call_id) else None
    if stored is None:
        raise not_found("call")
    return stored


async def show_call(asked: Asked) -> Json:
    stored = stored_call(asked)
    return call_json(stored, journal_of(asked).of_call(stored.call_id))


async def cancel_call(asked: Asked) -> Json:
    stored = stored_call(asked)
    if stored.status != "open":
        raise Refused(409, "ENDED", "The call has ended.", "Its record stays as it is.")
    return {"call_id": stored.call_id, "cancelled": installed(asked).engine.cancel(stored.call_id)}


async def read_output(asked: Asked) -> Response:
    """As a download of plain text: a browser must never take it for a page."""
    stored, query = stored_call(asked), asked.query
    output = (orjson.loads(stored.outcome) if stored.outcome else {}).get("output") or {}
    found = output.get(query.stream)
    if found is None:
        raise not_found("output")
    text = found if isinstance(found, str) else orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
    name = f'attachment; filename="{stored.call_id}-{query.stream}.txt"'
    headers = {"Content-Disposition": name, "Content-Security-Policy": "default-src 'none'; sandbox"}
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type=TEXT)


OUTPUT = Route(
    method="GET",
    path=f"{PREFIX}/calls/{{id}}/output",
    name="read_output",
    who=Who.OPERATOR,
    handler=read_output,
    summary="A call's output as plain text: the redacted bytes, as they were recorded.",
    answers={200: Answer(meaning="The text.", media_type="text/plain")},
    query=WhichStream,
    tags=("calls",),
)
ROUTES = (
    get("/calls", list_calls, name="list_calls", says="Calls that ended, the newest first; with status `open` those "
        "under way.", model=Listed[CallLine], query=WhichCalls),
    get("/calls/{id}", show_call, name="show_call_record", says="A call with its entries, outcome and kept details.",
        model=CallRecord),
    OUTPUT,
    change("/calls/{id}/cancel", cancel_call, name="cancel_any_call", says="End a running call.",
           model=Cancelled),
)  # fmt: skip
