"""A call with somebody at its other end: its output as it comes, its stdin, and questions to the person there.

`POST /v1/calls` with `Accept: text/event-stream` is such a call: events `begun`, `output`, `stdin`, `approval`,
`confirm`, `outcome`. Rules: nothing of the output is dropped, a program that writes faster than its reader reads waits;
the call ends with the connection it is read on. Stdin and questions are an operator's alone: `palyra run` and `call`,
and of them that of who made the call: another operator decides in their own name, not as the person at its terminal.

Not here: calls that are only followed (daemon/calls), what is asked and who may confirm (engine/approval).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon import sse
from palyra.daemon.feed import Event, Feed
from palyra.daemon.live import LiveCall, output_event
from palyra.daemon.orders import Order
from palyra.daemon.routes import Answer, AnswerModel, Asked, Model, Route, Who, json_response, not_found
from palyra.daemon.state import State
from palyra.model.approval import Approval
from palyra.model.outcome import StreamName

HIGH, LOW = 256 * 1024, 64 * 1024
_KEPT_BYTES = 64 << 20
_STDIN_CHUNKS = 4


class Paced:
    """The sink of an attended call: full while its reader is behind."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._unsent = 0
        self._room: asyncio.Future[None] | None = None

    def __call__(self, stream: StreamName, chunk: bytes) -> None:
        data = output_event(stream, chunk)
        self._unsent += len(data)
        self._feed.put("output", data)

    def room(self, stream: StreamName) -> asyncio.Future[None] | None:
        if self._room is None and self._unsent > HIGH:
            self._room = asyncio.get_running_loop().create_future()
        return self._room

    def sent(self, event: Event) -> None:
        if event.name == "output":
            self._unsent -= len(event.data)
        if self._room is not None and self._unsent <= LOW:
            room, self._room = self._room, None
            room.set_result(None)

    def end(self, _: object = None) -> None:
        """Nothing more comes: whoever still waits for room, and all it holds, is let go."""
        self._unsent = 0
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None


class Attendance:
    """What the other end may add while the call goes on."""

    def __init__(self, feed: Feed, by: str) -> None:
        self.by = by
        """Who is at the other end; the call itself may be made for somebody else."""
        self._feed = feed
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue(_STDIN_CHUNKS)
        self._question: asyncio.Future[bool | None] | None = None

    async def read(self) -> bytes:
        """The engine's `Source`: nothing is read over there before the program wants it."""
        self._feed.put("stdin", b"{}")
        return await self._stdin.get()

    async def write(self, chunk: bytes) -> None:
        await self._stdin.put(chunk)

    async def confirm(self, approval: Approval, shown: Mapping[str, Json]) -> bool | None:
        """The engine's `Confirm`: asked over there, answered by `answer`."""
        self._question = asyncio.get_running_loop().create_future()
        told = {field.name: getattr(approval, field.name) for field in fields(approval)}
        told = {name: value for name, value in told.items() if not isinstance(value, bytes)}
        self._feed.put("confirm", orjson.dumps({"approval": told, "shown": shown}))
        return await self._question

    def answer(self, answer: bool | None) -> bool:  # noqa: FBT001  # yes, no, or nothing
        if self._question is None or self._question.done():
            return False
        self._question.set_result(answer)
        return True


def attend(state: State, order: Order) -> Response:
    feed = Feed(max_events=1 << 30, max_bytes=_KEPT_BYTES)
    paced, attendance, body = Paced(feed), Attendance(feed, order.caller.principal), order.body
    request = replace(
        order.request,
        on_output=paced,
        source=attendance if body.stream_stdin else None,
        confirm=attendance.confirm if body.confirm else None,
    )
    assert request.call_id is not None, "a door gives every call its id"
    feed.put("begun", orjson.dumps({"call_id": request.call_id, "run_id": request.run.run_id}))
    call = state.calls.begin(request, listener=feed)
    call.task.add_done_callback(paced.end)
    if state.calls.find(call.call_id) is call:  # else another call has this id, and its own other end
        state.attended[call.call_id] = attendance
        call.task.add_done_callback(lambda _: state.attended.pop(call.call_id, None))

    def sent(event: Event) -> None:
        paced.sent(event)
        feed.was_sent(event.number)

    return sse.stream_feed(feed, sent=sent, on_end=lambda: _end(state, call))


def _end(state: State, call: LiveCall) -> None:
    if not call.task.done() and state.calls.find(call.call_id) is call:  # never another's that has this id
        state.calls.cancel(call.call_id)


# ── what the other end adds ──


class AnswerBody(Model):
    answer: Annotated[bool | None, Field(description="Yes, no, or null if nobody answered.")]


class Taken(AnswerModel):
    bytes: int


class Heard(AnswerModel):
    heard: bool


def _own(asked: Asked) -> Attendance:
    attendance = asked.state.attended.get(asked.path["call_id"])
    if attendance is None or attendance.by != asked.caller.principal:
        raise not_found("attended call")
    return attendance


async def stdin(asked: Asked) -> Response:
    """Chunk by chunk, as fast as the program takes it; at the end of the body its stdin ends."""
    state, call_id = asked.state, asked.path["call_id"]
    attendance, call = _own(asked), state.calls.find(call_id)
    if call is None:
        raise not_found("attended call")
    count = 0
    try:
        async for chunk in asked.request.stream():
            if chunk and not await _write_or_end(attendance, call, chunk):
                return json_response({"bytes": count}, headers={"Connection": "close"})
            count += len(chunk)
    except ClientDisconnect:  # the call is over, or will be, with whoever reads it; that is no end of its stdin
        return json_response({"bytes": count})
    await _write_or_end(attendance, call, b"")
    return json_response({"bytes": count})


async def _write_or_end(attendance: Attendance, call: LiveCall, chunk: bytes) -> bool:
    writing = asyncio.ensure_future(attendance.write(chunk))
    either: list[asyncio.Future[Any]] = [writing, call.task]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if writing.done():
        return True
    writing.cancel()
    return False


async def answer(asked: Asked) -> Response:
    attendance = _own(asked)
    return json_response({"heard": attendance.answer(asked.body.answer)})


ROUTES = (
    Route(
        method="POST",
        path="/v1/calls/{call_id}/stdin",
        name="feed_call",
        who=Who.OPERATOR,
        handler=stdin,
        summary="The stdin of an attended call made with stream_stdin, as a stream.",
        answers={200: Answer(meaning="How much of it was taken.", model=Taken)},
        accepts="application/octet-stream",
        streamed_body=True,
        tags=("calls",),
    ),
    Route(
        method="POST",
        path="/v1/calls/{call_id}/answer",
        name="answer_call",
        who=Who.OPERATOR,
        handler=answer,
        summary="The answer to a `confirm` event of an attended call.",
        body=AnswerBody,
        answers={200: Answer(meaning="Whether somebody was waiting for it.", model=Heard)},
        tags=("calls",),
    ),
)
