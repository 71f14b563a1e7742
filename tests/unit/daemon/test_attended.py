"""Calls with somebody at their other end: nothing of the output is dropped, stdin and answers come back, and the call
ends with its listener."""

from __future__ import annotations

import asyncio
import json

import pytest

from palyra.daemon.attended import HIGH, Attendance, Paced
from palyra.daemon.feed import Feed
from palyra.model.outcome import StreamName
from tests.daemons import AGENT, HOST, OPERATOR
from tests.promises import promise

EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def one(served):
    return served.token(AGENT)


def events_of(text: str) -> list[tuple[str, object]]:
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if block]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


def test_output_comes_as_events_and_ends_with_the_outcome(served, one, workspace):
    call = {"tool": "palyra.process.run", "input": {"command": "seq", "args": ["3"]}, "workspace": str(workspace)}
    events = events_of(served.ask("POST", "/v1/calls", token=one, json=call, headers=EVENTS).text)
    assert [events[0][0], events[-1][0], events[-1][1]["status"]] == ["begun", "outcome", "completed"]
    assert "".join(data["text"] for name, data in events if name == "output") == "1\n2\n3\n"
    assert served.state.attended == {}


def test_an_agent_gives_no_stdin_and_confirms_nothing(served, one):
    for word in ("stream_stdin", "confirm"):
        body = {"tool": "palyra.echo", word: True}
        (_, _), (name, outcome) = events_of(served.ask("POST", "/v1/calls", token=one, json=body, headers=EVENTS).text)
        assert (name, outcome["reason"]) == ("outcome", "CAPABILITY_DENIED")


@promise("daemon.attended-terminal")
def test_another_operator_neither_answers_nor_types_for_who_made_the_call(served):
    """What is said there is recorded as the word of the person at the call's terminal."""
    feed = Feed()
    attendance = served.state.attended["01J00000000000000000000009"] = Attendance(feed, OPERATOR)
    try:
        other = served.token("user:other", operator=True)
        path = "/v1/calls/01J00000000000000000000009"
        said = served.ask("POST", f"{path}/answer", token=other, json={"answer": True})
        typed = served.ask("POST", f"{path}/stdin", token=other, content=b"rm -rf .\n")
        assert (said.status_code, typed.status_code) == (404, 404)
        own = served.ask("POST", f"{path}/answer", token=served.token(OPERATOR, operator=True), json={"answer": True})
        assert own.json() == {"heard": False}, "nobody asked yet"
        assert attendance.by == OPERATOR
    finally:
        del served.state.attended["01J00000000000000000000009"]


def test_a_listener_that_left_before_the_first_event_ends_its_call(served, one, workspace):
    """The generator of its events never began, so nothing in it could end the call."""
    body = json.dumps({"tool": "palyra.process.run", "input": {"command": "yes"}, "workspace": str(workspace)}).encode()
    headers = {"host": HOST, "authorization": f"Bearer {one}", "accept": "text/event-stream"}
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
        "path": "/v1/calls", "raw_path": b"/v1/calls", "query_string": b"", "scheme": "http", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "client": ("127.0.0.1", 1),
        "server": ("localhost", 7142), "state": {},
    }  # fmt: skip
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop() if len(messages) > 1 else messages[0]

    async def send(message):
        await asyncio.sleep(0)

    async def story() -> None:
        await served.app(scope, receive, send)
        for _ in range(1000):
            if not served.state.calls.count:
                return
            await asyncio.sleep(0.01)

    served.run(story())
    assert (served.state.calls.count, served.state.attended) == (0, {})


def test_a_program_waits_for_its_reader():
    async def story() -> None:
        feed = Feed(max_events=1 << 20, max_bytes=1 << 30)
        paced = Paced(feed)
        while paced.room(StreamName.STDOUT) is None:
            paced(StreamName.STDOUT, b"x" * 4096)
        room = paced.room(StreamName.STDOUT)
        assert HIGH < feed.kept_bytes < 2 * HIGH
        assert not room.done()
        for event in feed.since(0)[1]:
            paced.sent(event)
        assert room.done()
        assert paced.room(StreamName.STDOUT) is None

    asyncio.run(story())


def test_stdin_is_wanted_before_it_is_read():
    async def story() -> None:
        feed = Feed()
        attendance = Attendance(feed, OPERATOR)
        reading = asyncio.ensure_future(attendance.read())
        await asyncio.sleep(0)
        assert [event.name for event in feed.since(0)[1]] == ["stdin"]
        await attendance.write(b"here")
        assert await reading == b"here"
        assert not attendance.answer(True), "nobody asked"

    asyncio.run(story())
