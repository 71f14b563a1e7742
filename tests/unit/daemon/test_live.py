"""Calls under way: what is over is gone by itself."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import orjson
import pytest

from palyra.daemon.attended import Paced
from palyra.daemon.holding import _Line
from palyra.daemon.live import LiveCall
from palyra.daemon.sse import EventStream
from palyra.engine.trip import CallRequest, Trip
from palyra.errors import Rejected
from palyra.launch.capture import Capture
from palyra.model.outcome import Outcome
from tests.daemons import AGENT, HOST

ECHO = {"tool": "palyra.echo", "input": {"hello": "world"}}
REFUSED = {"tool": "palyra.process.run", "input": {"command": "no-such-program"}}


@pytest.fixture
def only_counting():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


OURS = LiveCall | CallRequest | Trip | Outcome | EventStream | Paced | Capture | Rejected | _Line
"""What a request is made of, and what its tasks and frames hold."""


def _alive() -> dict[int, object]:
    return {id(one): one for one in gc.get_objects() if isinstance(one, OURS)}


def _left(served, before) -> list[str]:
    """Of what is over, once nobody keeps it for those who come back."""
    served.run(served.state.calls.finish(within_s=10))
    served.run(asyncio.sleep(0.05))  # what was cancelled has ended
    served.state.calls.stopping = False
    served.state.calls._ended.clear()
    return [type(one).__name__ for number, one in _alive().items() if number not in before]


@pytest.mark.parametrize("body", [ECHO, REFUSED, ECHO | {"wait": False}], ids=["made", "refused", "not waited for"])
def test_a_call_that_is_over_leaves_nothing_for_the_collector(served, only_counting, body):
    """In circles, a daemon's calls stopped all others for a tenth of a second while somebody looked for them."""
    token, before = served.token(AGENT), _alive()
    for _ in range(3):
        assert served.ask("POST", "/v1/calls", token=token, json=body).status_code in (200, 202)
    assert _left(served, before) == []


def test_a_body_that_is_none_leaves_nothing_for_the_collector(served, only_counting):
    """Its refusal is made at the door and raised by the walk: what was raised holds the frames that hold it."""
    token, before = served.token(AGENT), _alive()
    for _ in range(3):
        assert served.ask("POST", "/v1/calls", token=token, content=b"{").status_code == 400
    assert _left(served, before) == []


@pytest.mark.parametrize("path", ["/v1/calls", "/v1/calls/{}/stream"], ids=["attended", "followed"])
def test_a_stream_that_is_over_leaves_nothing_for_the_collector(served, only_counting, path):
    token, before = served.token(AGENT), _alive()
    events = {"Accept": "text/event-stream"}
    for _ in range(3):
        if path == "/v1/calls":
            answer = served.ask("POST", path, token=token, json=ECHO, headers=events)
        else:
            call_id = served.ask("POST", "/v1/calls", token=token, json=ECHO).json()["call_id"]
            answer = served.ask("GET", path.format(call_id), token=token, headers=events)
        assert b"event: outcome" in answer.content
    assert _left(served, before) == []


@pytest.mark.parametrize("turns", [2, 3, 5, 9, 20])
def test_a_call_cancelled_right_after_it_began_leaves_nothing_for_the_collector(
    served, only_counting, workspace, turns
):
    """The cancellation was kept in a variable of the frame that its own traceback holds."""
    body = {"tool": "palyra.process.run", "input": {"command": "sleep", "args": ["60"]}, "wait": False}
    token, before = served.token(AGENT, workspace=str(workspace)), _alive()
    for _ in range(2):
        served.run(_cancel_after(served, token, body, turns))
    assert _left(served, before) == []


async def _cancel_after(served, token: str, body: Any, turns: int) -> None:
    """`turns` of the loop after the call began: inside the start of its sandbox, or soon after."""
    asked = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=token, json=body))
    calls = served.state.calls
    while not calls._live:
        await asyncio.sleep(0)
    (call,) = calls._live.values()
    for _ in range(turns):
        await asyncio.sleep(0)
    assert calls.cancel(call.call_id)
    await asyncio.wait({call.task})
    await asked


@pytest.mark.parametrize("by", ["its caller", "the daemon's end"])
def test_a_call_cancelled_before_the_engine_knows_it_is_cancelled(served, workspace, by):
    """The cancellation was lost: its caller, or the daemon's end, waited for the whole call."""
    body = {"tool": "palyra.process.run", "input": {"command": "sleep", "args": ["60"]}, "wait": False}
    token, calls = served.token(AGENT, workspace=str(workspace)), served.state.calls

    async def story() -> str:
        asked = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=token, json=body))
        while not calls._live:
            await asyncio.sleep(0)
        (call,) = calls._live.values()
        call_id = "" if calls._engine._live else call.call_id
        assert call_id, "the engine has not begun it"
        async with asyncio.timeout(30):  # in this very task: another one would let the engine begin
            await (calls.end(call) if by == "its caller" else calls.finish(within_s=0))
        await asked
        return call.task.result().status.value

    try:
        assert served.run(story()) == "cancelled"
    finally:
        calls.stopping = False


@pytest.mark.parametrize("flood", [False, True], ids=["quiet", "writing"])
def test_a_stream_that_was_left_midway_leaves_nothing_for_the_collector(served, only_counting, workspace, flood):
    """Its tasks were cancelled, and a program that wrote faster than its reader read was ended while it waited."""
    command = {"command": "yes"} if flood else {"command": "sleep", "args": ["60"]}
    token, before = served.token(AGENT, workspace=str(workspace)), _alive()
    for _ in range(2):
        served.run(_leave_midway(served, token, {"tool": "palyra.process.run", "input": command}))
    assert _left(served, before) == []


async def _leave_midway(served, token: str, body: Any) -> None:
    gone, told = asyncio.Event(), asyncio.Event()
    content = orjson.dumps(body)
    parts = [{"type": "http.request", "body": content, "more_body": False}]
    heads = {"host": HOST, "authorization": f"Bearer {token}", "accept": "text/event-stream"}

    async def receive() -> dict[str, Any]:
        if not parts:
            await gone.wait()
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if b"event: begun" in message.get("body", b""):
            told.set()
        elif told.is_set():
            await gone.wait()  # it reads no further

    headers = [(name.encode(), value.encode()) for name, value in heads.items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/calls", "headers": headers, "query_string": b""}
    answering = asyncio.ensure_future(served.app(scope | {"root_path": "", "state": {}}, receive, send))
    await asyncio.wait_for(told.wait(), 20)
    await asyncio.sleep(0.5)
    gone.set()
    await asyncio.wait_for(answering, 20)
