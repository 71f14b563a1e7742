"""Guests in this very process, on threads: only for publishers the operator named. wasmtime is then the only wall.

The same runtime as in the worker, with the same ends. Host calls go from the guest's thread to the engine's loop and
back; whatever they raise comes to the guest as a number. A thread cannot be killed: a cancelled call takes the guest's
time away instead, at its next host call or when its deadline comes, and is waited for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import OrderedDict
from typing import Any

from palyra.canon import sha256_hex
from palyra.inside.wasm import abi
from palyra.inside.wasm.component import ComponentRuntime
from palyra.inside.wasm.core import CoreRuntime, InvalidModule
from palyra.inside.wasm.direct import DirectRuntime, usable
from palyra.inside.wasm.engine import EpochTimer, check_version, make_engine
from palyra.inside.wasm.guest import Bounds, End, EndKind, Exceeded, Grants, GuestCall, Refused, StorageRoot
from palyra.launch.guest_worker import GuestEnd, HostCall, is_granted
from palyra.launch.guests import Artefact, execution
from palyra.launch.waiting import unbroken
from palyra.model.outcome import Execution
from palyra.model.wasm import CapabilityGrants, GuestKind, WasmPlan

MOST_LOADED = 64
"""Modules that stay ready; the longest unused goes first."""
REST_S = 0.05


class GuestThreads:
    def __init__(self, artefact: Artefact, *, at_once: int) -> None:
        check_version()
        self._artefact = artefact
        engine = make_engine(slots=at_once)
        components = make_engine(components=True)
        self._timers = EpochTimer(engine), EpochTimer(components)
        core = (DirectRuntime if usable() else CoreRuntime)(engine, self._timers[0])
        component = ComponentRuntime(components, self._timers[1])
        self._runtimes: dict[GuestKind, Any] = {GuestKind.CORE: core, GuestKind.COMPONENT: component}
        self._loaded: OrderedDict[str, tuple[Any, str]] = OrderedDict()
        self._resting: asyncio.TimerHandle | None = None
        self._threads = concurrent.futures.ThreadPoolExecutor(at_once, thread_name_prefix="palyra-guest")

    async def run(self, plan: WasmPlan, module: bytes, host_call: HostCall) -> tuple[Execution, bytes | None]:
        loop = asyncio.get_running_loop()
        try:
            loaded, compiled = await self._load(plan, module)
        except InvalidModule as error:
            return execution(GuestEnd(kind=EndKind.INVALID, detail=str(error)), wall_us=0, compiled_sha256=None), None
        began = loop.time()
        gate = _Gate(loop, plan.grants, host_call)
        call = GuestCall(input=plan.input, bounds=Bounds(**plan.wasm.as_json()), grants=_grants(plan.grants), gate=gate)
        running = loop.run_in_executor(self._threads, self._runtimes[plan.guest].run, loaded, call)
        try:
            end: End = await asyncio.shield(running)
        except asyncio.CancelledError:
            gate.closed = True
            await unbroken(_ended(running))
            raise
        finally:
            self._rest_soon(loop)
        wall_us = round((loop.time() - began) * 1_000_000)
        return execution(_told(end, call), wall_us=wall_us, compiled_sha256=compiled), end.output

    def _rest_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """An idle process is not woken by its timers; one that runs guest after guest does not stop them in between."""
        if self._resting is None:
            self._resting = loop.call_later(REST_S, self._rest)

    def _rest(self) -> None:
        self._resting = None
        for timer in self._timers:
            timer.rest()

    async def close(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        await asyncio.to_thread(self._threads.shutdown)
        self._loaded.clear()
        for timer in self._timers:
            timer.close()

    async def _load(self, plan: WasmPlan, module: bytes) -> tuple[Any, str]:
        """The module as it was compiled, and the digest of that."""
        found = self._loaded.get(plan.module_sha256)
        if found is None:
            artefact = await self._artefact(plan.module_sha256, module)
            found = self._runtimes[plan.guest].load(artefact, memories=plan.memories), sha256_hex(artefact)
            self._loaded[plan.module_sha256] = found
            while len(self._loaded) > MOST_LOADED:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(plan.module_sha256)
        return found


class _Gate:
    """Carries host calls from the guest's thread to the engine's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, grants: CapabilityGrants, host_call: HostCall) -> None:
        self._loop, self._grants, self._host_call = loop, grants, host_call
        self.closed = False

    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        if self.closed:
            raise Exceeded(EndKind.TIMEOUT, "The call was cancelled.")
        if not is_granted(operation, name, self._grants):
            raise Refused(abi.NOT_GRANTED)
        asked = asyncio.run_coroutine_threadsafe(
            _awaited(self._host_call, operation, name, payload, timeout_s), self._loop
        )
        try:
            number, body = asked.result(timeout_s)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            raise Exceeded(EndKind.TIMEOUT, "A host call took the rest of the guest's time.") from None
        except concurrent.futures.CancelledError:
            raise Exceeded(EndKind.TIMEOUT, "The call was cancelled.") from None
        if number < 0:
            raise Refused(number)
        return body


async def _awaited(host_call: HostCall, operation: str, name: str, payload: bytes, left_s: float) -> tuple[int, bytes]:
    answer = await host_call(operation, name, payload, left_s)
    return answer.number, answer.body


async def _ended(running: asyncio.Future[End]) -> None:
    await asyncio.wait([running])
    running.exception()


def _grants(grants: CapabilityGrants) -> Grants:
    return Grants(
        http=grants.http,
        secrets=grants.secrets,
        readable_secrets=grants.readable_secrets,
        storage=tuple(StorageRoot(root.prefix, root.writable) for root in grants.storage),
        channels=grants.channels,
    )


def _told(end: End, call: GuestCall) -> GuestEnd:
    return GuestEnd(
        kind=end.kind,
        detail=end.detail[:500],
        exit_code=end.exit_code,
        output=end.output,
        fuel=end.fuel,
        memory_bytes=end.memory_bytes,
        host_calls=call.calls,
    )
