"""`/console/v1/events`: what happens, as server-sent events, each known by its place in the journal.

An event is an entry told in a few words: a listener that comes back says which it saw last (`Last-Event-ID`) and gets
everything since, also over a restart of the daemon: the journal itself is the memory. Entries that other processes of
this home write come too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.operators.answering import PREFIX, Maybe, Place, installed, journal_of
from palyra.daemon.routes import Answer, Asked, Model, Refused, Route, Who
from palyra.daemon.sse import EventStream
from palyra.errors import StateError
from palyra.journal.chain import ACT, INTENT, RESULT
from palyra.journal.entry import parse_entry
from palyra.journal.lookup import TREE_SIZE
from palyra.model.record import Entry

STREAM = "text/event-stream"
LOOK_S = 0.25
QUIET_LOOKS = 60
"""After so many looks without an event a comment keeps the connection known to be alive."""
PAGE = 200
MAX_STREAMS = 64
_KINDS = {INTENT: "call", RESULT: "call", ACT: "act"}
_open = 0


class Since(Model):
    after: Annotated[Place | None, Maybe] = None
    """Entries after this place; `Last-Event-ID` says the same. Without either: from now on."""


async def stream_events(asked: Asked) -> Response:
    if asked.request.method == "HEAD":
        return Response(media_type=STREAM)  # a stream without a body would never end
    if _open >= MAX_STREAMS:
        raise Refused(429, "BUSY", f"{MAX_STREAMS} streams are open.", "Close some.", headers={"Retry-After": "5"})
    return EventStream(_events(asked, _after(asked)), media_type=STREAM, headers={"X-Accel-Buffering": "no"})


def _after(asked: Asked) -> int:
    """Never past the end: a journal that was put back from a copy is shorter than what a listener saw of it."""
    last, newest = asked.request.headers.get("last-event-id", ""), journal_size(asked) - 1
    if last.isascii() and last.isdigit() and len(last) <= 15:
        return min(int(last), newest)
    return newest if asked.query.after is None else min(asked.query.after, newest)


def journal_size(asked: Asked) -> int:
    return int(installed(asked).writer.rows(TREE_SIZE)[0][0])


async def _events(asked: Asked, after: int) -> AsyncIterator[bytes]:
    global _open  # noqa: PLW0603  # how many are open in this process
    _open += 1
    try:
        yield b"retry: 2000\n\n"
        quiet = 0
        while not asked.state.stopping:
            entries = _since(asked, after)
            for entry in entries:
                after = entry.index
                yield event_bytes(entry)
            quiet = 0 if entries else quiet + 1
            if quiet >= QUIET_LOOKS or len(entries) == PAGE:
                quiet = 0
                yield b": still here\n\n"
            if len(entries) < PAGE:
                await asyncio.sleep(LOOK_S)
    except StateError:
        return  # the home was closed, or cannot be read: whoever listens comes back and is told
    finally:
        _open -= 1


def _since(asked: Asked, after: int) -> tuple[Entry, ...]:
    size = journal_size(asked)
    if size <= after + 1:
        return ()
    return journal_of(asked).lookup.tail(PAGE, before=min(size, after + 1 + PAGE))[-(size - after - 1) :]


def event_bytes(entry: Entry) -> bytes:
    """One event; its data is JSON on one line, so nothing in it can begin another."""
    kind, said = event_of(entry)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.index, kind.encode(), orjson.dumps(said))


def event_of(entry: Entry) -> tuple[str, dict[str, Json]]:
    try:
        view = parse_entry(entry.body)
    except ValueError:
        return "unreadable", {"index": entry.index}
    told = view.predicate
    kind = _KINDS.get(view.kind, "act")
    said: dict[str, Json] = {"index": entry.index, "at_unix_ms": view.at_unix_ms}
    if kind == "call":
        names = ("call_id", "run_id", "tool", "principal", "status", "reason")
        said |= {name: told.get(name) for name in names}
        kind = "call" if view.kind == RESULT else "call-started"
    else:
        act = str(told.get("act"))
        said |= {"act": act, "actor": told.get("actor"), "subject": view.subject, "run_id": told.get("run_id")}
        kind = act.split(".", 1)[0] if act.startswith(("approval.", "skill.", "policy.", "process.")) else "act"
    return kind, said


ROUTES = (
    Route(
        method="GET",
        path=f"{PREFIX}/events",
        name="stream_events",
        who=Who.OPERATOR,
        handler=stream_events,
        summary="What happens, as server-sent events; resumable with Last-Event-ID.",
        answers={200: Answer(meaning="Events, until the caller disconnects.", media_type=STREAM)},
        query=Since,
        tags=("events",),
    ),
)
