"""Events: each an entry of the journal, in order, none twice, resumed by the last that was seen."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from palyra.daemon.auth import Caller, Proof
from palyra.daemon.operators import events
from palyra.daemon.routes import Asked
from palyra.model.record import Entry
from tests.daemons import OPERATOR, daemon


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with daemon(tmp_path_factory.mktemp("events") / "home") as made:
        yield made


class Request:
    def __init__(self, **headers: str) -> None:
        self.headers = headers
        self.method = "GET"
        self.cookies: dict[str, str] = {}


def asked(served, *, after: int | None = None, **headers: str) -> Asked:
    caller = Caller(principal=OPERATOR, operator=True, proof=Proof.PEER)
    return Asked(served.state, caller, Request(**headers), {}, events.Since(after=after), None)


async def read(stream, count: int) -> list[dict]:
    """The next events, comments left out."""
    found: list[dict] = []
    async with aclosing(stream):
        return await _read(stream, count, found)


async def _read(stream, count: int, found: list[dict]) -> list[dict]:
    async for chunk in stream:
        lines = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n") if not line.startswith(":"))
        if "data" in lines:
            found.append({"id": int(lines["id"]), "event": lines["event"], **json.loads(lines["data"])})
        if len(found) == count:
            return found
    return found


async def make_tokens(served, count: int) -> None:
    for number in range(count):
        await served.state.tokens.create(principal=f"agent:n{number}", operator=False, by=OPERATOR)


def test_every_entry_comes_once_and_in_order(served):
    async def work() -> list[dict]:
        question = asked(served)
        stream = events._events(question, events._after(question))
        reading = asyncio.create_task(read(stream, 5))
        await asyncio.sleep(0)
        await make_tokens(served, 5)
        return await asyncio.wait_for(reading, 20)

    found = served.run(work())
    first = found[0]["id"]
    assert [one["id"] for one in found] == list(range(first, first + 5))
    assert {one["act"] for one in found} == {"token.created"}
    assert events._open == 0, "a stream that is let go is counted out"


def test_a_listener_that_comes_back_misses_nothing(served):
    """Also over several pages of the journal."""
    served.run(make_tokens(served, 450))

    async def work(last: int) -> list[dict]:
        question = asked(served, **{"last-event-id": str(last)})
        return await asyncio.wait_for(read(events._events(question, events._after(question)), 440), 20)

    found = served.run(work(5))
    assert [one["id"] for one in found] == list(range(6, 446))


def test_where_a_listener_begins(served):
    served.run(make_tokens(served, 1))
    size = served.state.installation.journal.checkpoint().size
    assert events._after(asked(served)) == size - 1
    assert events._after(asked(served, after=0)) == 0
    assert events._after(asked(served, after=1 << 50)) == size - 1
    assert events._after(asked(served, **{"last-event-id": "0"})) == 0
    assert events._after(asked(served, **{"last-event-id": "9" * 15})) == size - 1, "not for ever past the end"
    assert events._after(asked(served, **{"last-event-id": "x\ny"})) == size - 1


def test_nothing_in_an_entry_begins_another_event():
    entry = Entry(3, b"", b"\n\nevent: forged\n\n")
    assert events.event_bytes(entry) == b'id: 3\nevent: unreadable\ndata: {"index":3}\n\n'


def test_asking_for_the_head_of_a_stream_ends(served):
    answer = served.ask("HEAD", "/console/v1/events", token=served.token(OPERATOR, operator=True))
    assert (answer.status_code, answer.content) == (200, b"")


def test_too_many_streams_are_refused(served, monkeypatch):
    monkeypatch.setattr(events, "_open", events.MAX_STREAMS)
    token = served.token(OPERATOR, operator=True)
    answer = served.ask("GET", "/console/v1/events", token=token)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
