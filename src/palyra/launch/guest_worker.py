"""One jailed worker from outside: told a module once, then calls, one at a time; its host calls are answered here.

Rules: the worker is not trusted. Sizes are bounded, a name or operation the plan did not grant is refused whatever the
worker says it checked, and what breaks the frames' rules ends the worker. The deadline is kept from outside too: a
worker that has not answered shortly after the call's time is killed, with everything in its sandbox.

Not here: which worker serves which call (guests), what a host call does (the engine's port).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Awaitable, Callable
from typing import Protocol

from palyra.canon import sha256_hex
from palyra.errors import Reason
from palyra.inside.wasm import abi, frames
from palyra.inside.wasm.frames import BadFrame, Frame, Parser
from palyra.inside.wasm.guest import EndKind
from palyra.launch.course import Running
from palyra.launch.executor import LaunchFailed
from palyra.launch.feed import write_all
from palyra.launch.waiting import readable, unbroken
from palyra.model.wasm import CapabilityGrants, HostAnswer, WasmLimits, WasmPlan
from palyra.values import dataclass

START_TIMEOUT_S = 20.0
LATE_S = 1.0
"""How long after a call's deadline its worker may still say how the guest ended."""
BRIEF_MS = 1
"""How long an answer is waited for without going back to the loop, where no other guest runs: most guests are done
sooner, and each turn of the loop costs more than they do."""
_CHUNK = 1 << 16
"""What a pipe holds; a larger buffer is a mapping of its own, made and given back for each reading."""
_NAMED = {"http-fetch": "http", "secret-get": "secrets", "channel-send": "channels"}
_STORAGE = ("storage-get", "storage-list", "storage-put", "storage-delete")


class Begin(Protocol):
    """Starts the worker's program in its jail."""

    async def __call__(self) -> Running: ...


HostCall = Callable[[str, str, bytes, float], Awaitable[HostAnswer]]
"""operation, name of what was granted, payload, seconds left → answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestEnd:
    kind: EndKind
    detail: str = ""
    exit_code: int | None = None
    output: bytes | None = None
    fuel: int | None = None
    memory_bytes: int = 0
    host_calls: int = 0


class WorkerLost(Exception):
    """The worker ended, or had to be ended, in the middle of what it was doing."""


class ModuleRefused(Exception):
    """The worker cannot run this module: the sentence says why."""


class Worker:
    """Started by `start`; `usable` says whether it may take another call."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._to = running.take("stdin")
        self._from = running.take("stdout")
        self._errors = running.take("stderr")
        for fd in (self._to, self._from, self._errors):
            os.set_blocking(fd, False)
        self._parser = Parser(max_body_bytes=64 << 20)
        self._waiting: list[Frame] = []
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        self._asked: tuple[WasmLimits, CapabilityGrants, bytes] | None = None
        """What the last call might use and name, and how that is written."""
        self.usable = True
        self.module_sha256 = self.compiled_sha256 = ""

    @classmethod
    async def start(cls, begin: Begin) -> Worker:
        worker = cls(await begin())
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await worker._expect(frames.READY)
        except (TimeoutError, WorkerLost) as error:
            said = worker._last_words()
            await worker.end()
            raise LaunchFailed(f"The worker for guests did not start: {said or 'no answer'}.") from error
        except BaseException:  # cancelled: whoever closes has no use for a spare that is not ready yet
            await unbroken(worker.end())
            raise
        return worker

    async def load(self, plan: WasmPlan, artefact: bytes) -> None:
        await self._send(Frame(frames.LOAD, {"guest": plan.guest.value, "memories": plan.memories}, artefact))
        async with asyncio.timeout(START_TIMEOUT_S):
            frame = await self._receive()
        if frame.kind == frames.INVALID:
            raise ModuleRefused(str(frame.head.get("detail", ""))[:500])
        if frame.kind != frames.LOADED:
            raise WorkerLost("the worker answered out of order")
        self.module_sha256 = plan.module_sha256
        self.compiled_sha256 = sha256_hex(artefact)

    async def run(self, plan: WasmPlan, host_call: HostCall, *, alone: bool = False) -> GuestEnd:
        """`alone`: no other guest runs, and the loop may be held up for a moment."""
        data = frames.pack(frames.RUN, self._head(plan), plan.input)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + plan.wasm.wall_ms / 1000
        try:
            sent = self._write_now(data)
            frame = self._receive_soon() if alone and sent == len(data) else None
            if frame is not None and frame.kind == frames.END:
                return _end(frame, plan)
            async with asyncio.timeout_at(deadline + LATE_S):
                await self._write(data[sent:])
                while True:
                    frame = frame or await self._receive()
                    if frame.kind == frames.END:
                        return _end(frame, plan)
                    if frame.kind != frames.ASK:
                        raise WorkerLost("the worker answered out of order")
                    await self._send(await self._answer(frame, plan.grants, host_call, deadline - loop.time()))
                    frame = self._receive_soon() if alone else None
        except TimeoutError:
            self.usable = False
            return GuestEnd(kind=EndKind.TIMEOUT, detail=f"The guest ran longer than {plan.wasm.wall_ms} ms.")
        except BaseException:
            self.usable = False
            raise

    async def _answer(self, frame: Frame, grants: CapabilityGrants, host_call: HostCall, left_s: float) -> Frame:
        operation, name = frame.head.get("operation"), frame.head.get("name")
        if not isinstance(operation, str) or not isinstance(name, str) or not is_granted(operation, name, grants):
            return Frame(frames.ANSWER, {"number": abi.NOT_GRANTED})
        answer = await host_call(operation, name, frame.body, max(0.0, left_s))
        return Frame(frames.ANSWER, {"number": min(answer.number, 0)}, answer.body)

    async def end(self) -> None:
        """Kill it and everything in its sandbox; a second time does nothing."""
        self.usable = False
        await unbroken(self._running.end(program_ended=False))
        fds, self._to, self._from, self._errors = (self._to, self._from, self._errors), -1, -1, -1
        for fd in fds:
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _head(self, plan: WasmPlan) -> bytes:
        if self._asked is None or self._asked[:2] != (plan.wasm, plan.grants):
            head = frames.pack_head({"bounds": dict(plan.wasm.as_json()), "grants": plan.grants.as_json()})
            self._asked = plan.wasm, plan.grants, head
        return self._asked[2]

    async def _send(self, frame: Frame) -> None:
        await self._write(frame.pack())

    async def _write(self, data: bytes) -> None:
        if not await write_all(self._to, data, _ignore):
            raise WorkerLost("the worker ended")

    def _write_now(self, data: bytes) -> int:
        """How much of it the pipe took."""
        try:
            return os.write(self._to, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise WorkerLost("the worker ended") from None

    def _receive_soon(self) -> Frame | None:
        """What comes within a moment, waited for here."""
        with contextlib.suppress(BlockingIOError):
            while not self._waiting and self._poll.poll(BRIEF_MS):
                self._read()
        return self._waiting.pop(0) if self._waiting else None

    async def _receive(self) -> Frame:
        while not self._waiting:
            try:
                self._read()
            except BlockingIOError:
                await readable(self._from)
        return self._waiting.pop(0)

    def _read(self) -> None:
        data = os.read(self._from, _CHUNK)
        if not data:
            raise WorkerLost("the worker ended")
        try:
            self._waiting = self._parser.feed(data)
        except BadFrame as error:
            raise WorkerLost(str(error)) from error

    async def _expect(self, kind: int) -> None:
        if (await self._receive()).kind != kind:
            raise WorkerLost("the worker answered out of order")

    def _last_words(self) -> str:
        try:
            return os.read(self._errors, 4096).decode("utf-8", "replace").strip().split("\n")[-1]
        except OSError:
            return ""


def _ignore(part: bytes) -> None: ...


def is_granted(operation: str, name: str, grants: CapabilityGrants) -> bool:
    if operation == "log":
        return name in ("0", "1", "2", "3", "4")
    if operation == "secret-get":
        return name in grants.readable_secrets
    if operation in _STORAGE:
        writes = operation in ("storage-put", "storage-delete")
        return any(root.prefix == name and (root.writable or not writes) for root in grants.storage)
    return operation in _NAMED and name in getattr(grants, _NAMED[operation])


def _end(frame: Frame, plan: WasmPlan) -> GuestEnd:
    """Every field is checked: a broken-out guest may say anything here."""
    head = frame.head
    try:
        kind = EndKind(str(head.get("kind")))
    except ValueError:
        raise WorkerLost("the worker did not end its answer properly") from None
    code, fuel, memory = head.get("exit_code"), head.get("fuel"), head.get("memory_bytes")
    if len(frame.body) > plan.wasm.output_bytes:
        detail = f"The guest's output is larger than {plan.wasm.output_bytes} bytes."
        return GuestEnd(kind=EndKind.QUOTA, detail=detail)
    return GuestEnd(
        kind=kind,
        detail=str(head.get("detail", ""))[:500],
        exit_code=code if isinstance(code, int) and -(2**31) <= code < 2**31 else None,
        output=frame.body if head.get("has_output") is True else None,
        fuel=fuel if isinstance(fuel, int) and 0 <= fuel <= plan.wasm.fuel else None,
        memory_bytes=memory if isinstance(memory, int) and 0 <= memory <= plan.wasm.memory_bytes else 0,
        host_calls=_count(head.get("host_calls")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


REASONS = {
    EndKind.OUT_OF_FUEL: Reason.OUT_OF_FUEL,
    EndKind.TIMEOUT: Reason.TIMEOUT,
    EndKind.MEMORY: Reason.MEMORY_LIMIT,
    EndKind.QUOTA: Reason.QUOTA_EXCEEDED,
    EndKind.TRAPPED: Reason.TRAPPED,
    EndKind.INVALID: Reason.BAD_ARGUMENTS,
    EndKind.BROKEN: Reason.INTERNAL,
}
