"""What an embedder's own `on_output` raises is raised to whoever made the call, once its record is closed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palyra.api_output import heard
from palyra.engine.runs import Run
from palyra.engine.trip import CallRequest
from palyra.model.outcome import Outcome, Status, StreamName

DONE = Outcome(call_id="c", run_id="r", tool="t", status=Status.COMPLETED, success=True)
REQUEST = CallRequest(tool="t", input={}, run=object.__new__(Run))


class Engine:
    """Writes three pieces, a step of the loop apart, and says how it ended."""

    def __init__(self, *, pause_s: float = 0.0) -> None:
        self.ended = "not"
        self._pause_s = pause_s

    async def call(self, request: CallRequest) -> Outcome:
        assert request.on_output is not None
        try:
            for piece in (b"1", b"2", b"3"):
                request.on_output(StreamName.STDOUT, piece)
                await asyncio.sleep(self._pause_s)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.ended = "cancelled, and its record closed"
            raise
        self.ended = "completed"
        return replace(DONE)


def test_output_comes_as_it_is_written():
    engine, came = Engine(), []
    assert asyncio.run(heard(engine.call, REQUEST, lambda stream, piece: came.append((stream, piece)))) == DONE
    assert came == [(StreamName.STDOUT, piece) for piece in (b"1", b"2", b"3")]


@pytest.mark.parametrize(("at", "ended"), [(b"1", "cancelled, and its record closed"), (b"3", "completed")])
def test_what_the_listener_raises_ends_the_call_and_goes_to_the_caller(at: bytes, ended: str):
    engine, came = Engine(), []

    def listen(stream: StreamName, piece: bytes) -> None:
        came.append(piece)
        if piece == at:
            raise ValueError("mine")

    async def story() -> str:
        with pytest.raises(ValueError, match="mine"):
            await heard(engine.call, REQUEST, listen)
        await asyncio.sleep(0)
        return "whatever the caller does next is not cancelled"

    assert asyncio.run(story())
    assert came[-1] == at, "code that failed is told nothing more"
    assert engine.ended.startswith(("cancelled", ended))


def test_who_is_cancelled_is_cancelled_even_when_its_listener_failed():
    engine = Engine(pause_s=60)

    def listen(stream: StreamName, piece: bytes) -> None:
        raise ValueError("mine")

    async def story() -> None:
        asking = asyncio.ensure_future(heard(engine.call, REQUEST, listen))
        asyncio.get_running_loop().call_soon(asking.cancel)
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(story())


def test_cancelling_the_caller_ends_the_call_first():
    engine = Engine(pause_s=60)

    async def story() -> None:
        asking = asyncio.ensure_future(heard(engine.call, REQUEST, lambda stream, piece: None))
        await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(story())
    assert engine.ended == "cancelled, and its record closed"
