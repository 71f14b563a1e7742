"""What a worker does with frames: load a module, run a call, carry its host calls to the engine.

Rules: one call at a time, so that what kills this process hurts no other call; the engine's answers are waited for with
the time the call has left. `layer` is `direct` or `wrapper`: what runs core modules.
"""

from __future__ import annotations

import os
import select
from typing import Any, NamedTuple

from palyra.inside.wasm import frames
from palyra.inside.wasm.component import ComponentRuntime
from palyra.inside.wasm.core import CoreRuntime, InvalidModule
from palyra.inside.wasm.direct import DirectRuntime, usable
from palyra.inside.wasm.engine import EpochTimer, make_engine
from palyra.inside.wasm.frames import Frame, Parser
from palyra.inside.wasm.guest import Bounds, End, EndKind, Exceeded, Grants, GuestCall, Refused, StorageRoot

MAX_BODY_BYTES = 256 << 20
"""An artefact of a large component; the engine is who sends it."""
_CHUNK = 1 << 16
"""What a pipe holds; a larger buffer is a mapping of its own, made and given back for each reading."""


class Pipe:
    """Also the guests' gate: an ask goes out as a frame and its answer comes back as one."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._parser = Parser(max_body_bytes=MAX_BODY_BYTES)
        self._waiting: list[Frame] = []

    def send(self, frame: Frame) -> None:
        data = frame.pack()
        while len(data) > (count := os.write(self._writing, data)):
            data = data[count:]

    def receive(self, timeout_s: float | None = None) -> Frame | None:
        """None: nothing came in time. The end of the pipe ends the worker."""
        while not self._waiting:
            if timeout_s is not None and not select.select([self._reading], [], [], timeout_s)[0]:
                return None
            data = os.read(self._reading, _CHUNK)
            if not data:
                raise SystemExit(0)
            self._waiting = self._parser.feed(data)
        return self._waiting.pop(0)

    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        self.send(Frame(frames.ASK, {"operation": operation, "name": name}, payload))
        answer = self.receive(timeout_s)
        if answer is None:
            raise Exceeded(EndKind.TIMEOUT, "A host call took the rest of the guest's time.")
        number = answer.head["number"]
        if number < 0:
            raise Refused(number)
        return answer.body


def serve(reading: int, writing: int, *, layer: str) -> None:
    pipe = Pipe(reading, writing)
    engine = make_engine(slots=1)
    timer = EpochTimer(engine)
    core = DirectRuntime(engine, timer) if layer == "direct" and usable() else CoreRuntime(engine, timer)
    runtime: Any = core
    loaded = None
    asked = Asked({}, Bounds(0, 0, 0, 0), Grants())
    pipe.send(Frame(frames.READY))
    while True:
        frame = pipe.receive()
        assert frame is not None  # without a time limit there is a frame or the end
        if frame.kind == frames.LOAD:
            if frame.head["guest"] == "core":
                runtime = core
            else:
                engine = make_engine(components=True)  # of its own: components are compiled with other features
                timer = EpochTimer(engine)
                runtime = ComponentRuntime(engine, timer)
            try:
                loaded = runtime.load(frame.body, memories=frame.head["memories"])
            except InvalidModule as error:
                pipe.send(Frame(frames.INVALID, {"detail": str(error)}))
            else:
                pipe.send(Frame(frames.LOADED))
        elif frame.kind == frames.RUN:
            if frame.head is not asked.head:
                asked = parse_asked(frame.head)
            call = GuestCall(input=frame.body, bounds=asked.bounds, grants=asked.grants, gate=pipe)
            pipe.send(_ended(runtime.run(loaded, call), call))
            timer.rest()  # nobody waits for it any more


class Asked(NamedTuple):
    """What a call may use and name, as the frame's head says it."""

    head: dict[str, Any]
    bounds: Bounds
    grants: Grants


def parse_asked(head: dict[str, Any]) -> Asked:
    grants = head["grants"]
    return Asked(
        head,
        Bounds(**head["bounds"]),
        Grants(
            http=tuple(grants["http"]),
            secrets=tuple(grants["secrets"]),
            readable_secrets=frozenset(grants["readable_secrets"]),
            storage=tuple(StorageRoot(prefix, writable) for prefix, writable in grants["storage"]),
            channels=tuple(grants["channels"]),
        ),
    )


def _ended(end: End, call: GuestCall) -> Frame:
    head = {
        "kind": end.kind.value,
        "detail": end.detail,
        "exit_code": end.exit_code,
        "fuel": end.fuel,
        "memory_bytes": end.memory_bytes,
        "has_output": end.output is not None,
        "host_calls": call.calls,
    }
    return Frame(frames.END, head, end.output or b"")
