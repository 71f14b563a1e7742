"""Guests through the jailed worker: every way too far ends the same there, and a lost worker costs one call."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from palyra.canon import sha256_hex
from palyra.errors import Reason, Rejected
from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import EndKind
from palyra.launch.artefacts import MAC_BYTES, ArtefactCache
from palyra.launch.compiler import Compiler
from palyra.launch.course import Running
from palyra.launch.guest_worker import REASONS, Worker
from palyra.launch.guests import Guests
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.outcome import Execution, Status
from palyra.model.wasm import CapabilityGrants, GuestKind, HostAnswer, StorageGrant, WasmLimits, WasmPlan
from palyra.wiring.guests import artefact_meaning, compiler_plan, worker_plan
from tests.conformance.arena import host, require
from tests.promises import promise
from tests.unit.inside.wasm.components import STORING, component
from tests.unit.inside.wasm.guests import ECHO, LOOP, TOO_FAR, module

T = TypeVar("T")


@dataclass
class Jail:
    """Guests with everything real but the host calls, which are kept and answered from a table."""

    folder: Path
    answers: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)

    def use(self, work: Callable[[Jail], Awaitable[T]], *, at_once: int = 4) -> T:
        async def all_of_it() -> T:
            executor = ProcessExecutor(host())
            cache = ArtefactCache(self.folder / "cache", meaning=artefact_meaning(host()))
            compiler = Compiler(executor, compiler_plan(host()), cache)
            plan = worker_plan(host())
            self.guests = Guests(lambda: executor.begin(plan), compiler.artefact, at_once=at_once)
            try:
                return await work(self)
            finally:
                await self.guests.close()
                await executor.close()

        return asyncio.run(all_of_it())

    async def run(
        self,
        wasm: bytes,
        given: bytes = b"{}",
        *,
        limits: WasmLimits | None = None,
        grants: CapabilityGrants | None = None,
        guest: GuestKind = GuestKind.CORE,
    ) -> tuple[Execution, bytes | None]:
        plan = WasmPlan(
            module_sha256=sha256_hex(wasm),
            guest=guest,
            skill_id="acme.test",
            tool_id="test",
            input=given,
            wasm=limits or LIMITS,
            grants=grants or CapabilityGrants(),
        )
        return await self.guests.run(plan, wasm, self._answer)

    async def _answer(self, operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        self.asked.append((operation, name, payload))
        body = self.answers.get(operation)
        return HostAnswer(number=abi.ABSENT) if body is None else HostAnswer(body=body)


LIMITS = WasmLimits(memory_bytes=1 << 20, table_elements=1000, log_lines=100, output_bytes=4096, wall_ms=20_000)


@pytest.fixture
def jail(tmp_path: Path) -> Jail:
    require(Tier.C)
    return Jail(tmp_path)


def children() -> set[str]:
    found = set()
    for task in os.listdir("/proc/self/task"):
        found |= set(Path(f"/proc/self/task/{task}/children").read_text().split())
    return found


@promise("guest.broken-worker")
def test_a_guest_answers_and_nothing_is_left(jail: Jail) -> None:
    before = children()
    descriptors = len(os.listdir("/proc/self/fd"))

    async def twice(jail: Jail) -> list[bytes | None]:
        return [(await jail.run(ECHO, b'{"n":%d}' % n))[1] for n in range(2)]

    assert jail.use(twice) == [b'{"n":0}', b'{"n":1}']
    assert children() <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@promise("guest.limits")
@pytest.mark.parametrize(("wasm", "kind", "words"), TOO_FAR)
def test_too_far_has_an_end_of_its_own_in_the_jail_too(jail: Jail, wasm: bytes, kind: EndKind, words: str) -> None:
    jail.answers["log"] = b""
    execution, _ = jail.use(lambda jail: jail.run(wasm))
    assert execution.reason is REASONS[kind]
    assert words in (execution.message or "")


@promise("guest.limits")
def test_a_deadline_holds_in_the_jail(jail: Jail) -> None:
    limits = WasmLimits(fuel=10**15, wall_ms=300)
    execution, _ = jail.use(lambda jail: jail.run(LOOP, limits=limits))
    assert (execution.status, execution.reason) == (Status.TIMEOUT, Reason.TIMEOUT)


@promise("guest.limits")
def test_a_component_that_sleeps_ends_by_its_deadline(jail: Jail) -> None:
    """There is no clock to sleep by: a guest can only spin, or wait for an answer that does not come."""
    slow = WasmLimits(fuel=10**15, wall_ms=300)
    spinning = component("(loop $a (br $a)) (i32.const 0)")

    async def never(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        await asyncio.Event().wait()
        return HostAnswer()

    async def both(jail: Jail) -> list[tuple[Execution, bytes | None]]:
        jail._answer = never  # type: ignore[method-assign]
        grants = CapabilityGrants(storage=(StorageGrant(prefix="kept", writable=True),))
        return [
            await jail.run(spinning, limits=slow, guest=GuestKind.COMPONENT),
            await jail.run(STORING, b"key", limits=slow, grants=grants, guest=GuestKind.COMPONENT),
        ]

    for execution, output in jail.use(both):
        assert (execution.status, execution.reason, output) == (Status.TIMEOUT, Reason.TIMEOUT, None)
        assert "300 ms" in (execution.message or "")


def test_the_machine_code_that_ran_is_named_by_its_digest(jail: Jail) -> None:
    execution, _ = jail.use(lambda jail: jail.run(ECHO))
    (path,) = (jail.folder / "cache").glob("*.cwasm")
    assert execution.compiled_sha256 == sha256_hex(path.read_bytes()[MAC_BYTES:])


@promise("guest.broken-worker")
def test_host_calls_are_answered_by_the_engine_alone(jail: Jail) -> None:
    jail.answers["storage-get"] = b"kept"
    guest = module(
        "storage-get",
        "take",
        "output",
        memory='(memory (export "memory") 1) (data (i32.const 0) "k")',
        body="""(drop (call $storage-get (i32.const 30000) (i32.const 0) (i32.const 1)))
                (call $output (i32.const 64) (call $take (i32.const 64) (i32.const 99)))""",
    )
    grants = CapabilityGrants(storage=(StorageGrant(prefix="cache", writable=False),))
    execution, output = jail.use(lambda jail: jail.run(guest, grants=grants))
    assert (execution.message, output) == (None, b"kept")
    assert jail.asked == [("storage-get", "cache", b"k")]


@promise("guest.broken-worker")
def test_killing_workers_under_64_calls_fails_only_the_calls_they_held(jail: Jail) -> None:
    waiting = module(
        "channel-send",
        "output",
        memory='(memory (export "memory") 1) (data (i32.const 0) "{}")',
        body="""(drop (call $channel-send (i32.const 40000) (i32.const 0) (i32.const 1)))
                (call $output (i32.const 0) (i32.const 2))""",
    )
    grants = CapabilityGrants(channels=("out",))

    async def storm(jail: Jail) -> list[Execution]:
        held: list[int] = []

        async def answer(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
            if len(held) < 2:  # the first two calls lose their workers while they wait for this answer
                held.append(1)
                busy = [pid for pid in children() if _is_worker(pid)]
                os.kill(int(busy[0]), signal.SIGKILL)
                await asyncio.sleep(0.2)
            return HostAnswer()

        jail._answer = answer  # type: ignore[method-assign]
        ended = await asyncio.gather(*(jail.run(waiting, grants=grants) for _ in range(64)))
        return [execution for execution, _ in ended]

    ended = jail.use(storm)
    lost = [execution for execution in ended if execution.status is not Status.COMPLETED]
    assert 1 <= len(lost) <= 2
    assert {execution.reason for execution in lost} <= {Reason.TRAPPED, Reason.INTERNAL}  # INTERNAL: while starting


def test_a_spare_worker_that_is_not_ready_yet_is_ended_when_nobody_waits_for_it_any_more(jail: Jail) -> None:
    """Closing in that moment left it, and where a group counts its processes that group too, until the engine's end."""
    before = children()

    async def cancelled(jail: Jail) -> None:
        executor = ProcessExecutor(host())
        silent = replace(worker_plan(host()), program="/bin/sleep", argv=("/bin/sleep", "60"))
        started: list[Running] = []

        async def begin() -> Running:
            started.append(await executor.begin(silent))
            return started[-1]

        starting = asyncio.ensure_future(Worker.start(begin))
        while not started:
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert children() <= before
        await executor.close()

    jail.use(cancelled)


def _is_worker(pid: str) -> bool:
    try:
        return (
            b"worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
            or b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except OSError:
        return False


@promise("guest.compile-cache")
def test_a_patched_artefact_is_never_loaded_but_built_again(jail: Jail) -> None:
    jail.use(lambda jail: jail.run(ECHO))
    (path,) = (jail.folder / "cache").glob("*.cwasm")
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert jail.use(lambda jail: jail.run(ECHO, b"[]"))[1] == b"[]"
    assert path.read_bytes() == good


def test_a_module_wasmtime_refuses_is_refused_with_its_reason(jail: Jail) -> None:
    with pytest.raises(Rejected) as refused:
        jail.use(lambda jail: jail.run(b"\0asm\x01\0\0\0\xff"))
    assert refused.value.reason is Reason.BAD_ARGUMENTS
    assert "wasmtime refuses the module" in refused.value.detail
