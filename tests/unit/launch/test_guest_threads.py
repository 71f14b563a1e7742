"""Guests of trusted publishers, on threads of this process: the same ends as in the jail, and nobody else is hurt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from wasmtime import Module

from palyra.canon import sha256_hex
from palyra.errors import Reason
from palyra.inside.wasm import abi
from palyra.inside.wasm.core import CoreRuntime
from palyra.inside.wasm.engine import EpochTimer, make_engine
from palyra.inside.wasm.guest import EndKind
from palyra.launch.guest_threads import GuestThreads
from palyra.launch.guest_worker import REASONS, HostCall
from palyra.model.outcome import Execution, Status
from palyra.model.wasm import CapabilityGrants, GuestKind, HostAnswer, WasmLimits, WasmPlan
from tests.unit.inside.wasm.guests import ECHO, LOOP, TOO_FAR, module, wasm

T = TypeVar("T")
LIMITS = WasmLimits(memory_bytes=1 << 20, table_elements=1000, log_lines=100, output_bytes=4096, wall_ms=20_000)
SENDING = module("channel-send", body="(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 1))")
CHANNEL = CapabilityGrants(channels=("out",))


async def compiled(module_sha256: str, given: bytes) -> bytes:
    engine = make_engine()
    timer = EpochTimer(engine)
    try:
        return CoreRuntime(engine, timer).compile(given)
    finally:
        timer.close()


async def granted(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
    return HostAnswer()


def plan(guest: bytes, *, limits: WasmLimits = LIMITS, grants: CapabilityGrants | None = None) -> WasmPlan:
    return WasmPlan(
        module_sha256=sha256_hex(guest), guest=GuestKind.CORE, skill_id="acme.test", tool_id="go", input=b"[1]",
        wasm=limits, grants=grants or CapabilityGrants(), in_process=True,
    )  # fmt: skip


def use(work: Callable[[GuestThreads], Awaitable[T]], *, at_once: int = 4) -> T:
    async def all_of_it() -> T:
        threads = GuestThreads(compiled, at_once=at_once)
        try:
            return await work(threads)
        finally:
            await threads.close()

    return asyncio.run(all_of_it())


def run(guest: bytes, answer: HostCall = granted, **given: object) -> tuple[Execution, bytes | None]:
    return use(lambda threads: threads.run(plan(guest, **given), guest, answer))  # type: ignore[arg-type]


def test_a_guest_answers_and_no_thread_is_left() -> None:
    before = threading.active_count()
    execution, output = run(ECHO)
    assert (execution.status, execution.exit_code, output) == (Status.COMPLETED, 0, b"[1]")
    assert threading.active_count() <= before


@pytest.mark.parametrize(("guest", "kind", "words"), TOO_FAR)
def test_too_far_has_an_end_of_its_own_in_process_too(guest: bytes, kind: EndKind, words: str) -> None:
    execution, _ = run(guest)
    assert execution.reason is REASONS[kind]
    assert words in (execution.message or "")


def test_a_module_of_another_surface_is_refused() -> None:
    guest = wasm('(module (func (export "run") (result i32) (i32.const 0)))')

    async def lying(module_sha256: str, given: bytes) -> bytes:
        engine = make_engine()

        return bytes(Module(engine, '(module (func (export "go")))').serialize())

    async def work() -> Execution:
        threads = GuestThreads(lying, at_once=1)
        try:
            return (await threads.run(plan(guest), guest, granted))[0]
        finally:
            await threads.close()

    execution = asyncio.run(work())
    assert (execution.status, execution.reason) == (Status.REFUSED, Reason.BAD_ARGUMENTS)


def test_what_was_not_granted_never_comes_to_the_engine() -> None:
    asked: list[str] = []

    async def answer(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        asked.append(operation)
        return HostAnswer()

    assert run(SENDING, answer)[0].exit_code == abi.NOT_GRANTED
    assert asked == []
    assert run(SENDING, answer, grants=CHANNEL)[0].exit_code == 0
    assert asked == ["channel-send"]


def test_a_host_call_that_never_answers_ends_with_the_guests_time() -> None:
    async def never(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        await asyncio.Event().wait()
        return HostAnswer()

    execution, _ = run(SENDING, never, grants=CHANNEL, limits=WasmLimits(wall_ms=200))
    assert execution.reason is Reason.TIMEOUT


def test_a_failing_host_call_fails_this_guest_alone() -> None:
    async def broken(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        raise RuntimeError("secret detail")

    async def both(threads: GuestThreads) -> list[tuple[Execution, bytes | None]]:
        failing = threads.run(plan(SENDING, grants=CHANNEL), SENDING, broken)
        return list(await asyncio.gather(failing, threads.run(plan(ECHO), ECHO, granted)))

    (failed, _), (fine, output) = use(both)
    assert (failed.reason, "secret" in (failed.message or "")) == (Reason.INTERNAL, False)
    assert (fine.status, output) == (Status.COMPLETED, b"[1]")


def test_a_cancelled_call_waits_until_its_guest_has_ended() -> None:
    async def work(threads: GuestThreads) -> int:
        limits = WasmLimits(fuel=10**15, wall_ms=400)
        task = asyncio.ensure_future(threads.run(plan(LOOP, limits=limits), LOOP, granted))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = await threads.run(plan(ECHO), ECHO, granted)
        return again[0].exit_code or 0

    assert use(work, at_once=1) == 0
