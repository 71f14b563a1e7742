"""Calls of a guest, each with a fresh store, beside raw wasmtime-py and extism.

Every contender runs an echo of 64 bytes of JSON with its module compiled ahead. Ours bounds fuel, memory and time and
goes through the host functions; the wrapper's `InstancePre` call and extism's are the bare libraries, extism's in the
peers' environment and timed there. `jailed` is the same through the worker, for the row `wasm_jailed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from wasmtime import Caller, Config, Engine, FuncType, Linker, Memory, Module, Store, ValType, wat2wasm
from wasmtime import Func as WasmFunc

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.peers import worker
from palyra.canon import sha256_hex
from palyra.config.tool_call import WasmRuntimeConfig
from palyra.inside.wasm import abi
from palyra.inside.wasm.direct import DirectRuntime
from palyra.inside.wasm.engine import EpochTimer, make_engine
from palyra.inside.wasm.guest import Bounds, End, Grants, GuestCall
from palyra.launch.process import ProcessExecutor
from palyra.model.outcome import Execution
from palyra.model.wasm import GuestKind, HostAnswer, WasmLimits, WasmPlan
from palyra.sandbox.probe import probe
from palyra.wiring.guests import GuestHouse

COUNT = 20
"""Calls a round: one alone is close to the clock's own grain."""
INPUT = b'{"text":"' + b"x" * 53 + b'"}'
ECHO = bytes(
    wat2wasm(
        f"""(module
        (import "{abi.HOST}" "input-read" (func $read (param i32 i32) (result i32)))
        (import "{abi.HOST}" "output" (func $write (param i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "run") (result i32)
          (call $write (i32.const 0) (call $read (i32.const 0) (i32.const 4096)))))"""
    )
)
WRAPPER, EXTISM = "wasmtime-py InstancePre", "extism, compiled plugin"


def check(answers: list[bytes | None]) -> None:
    if answers != [INPUT] * COUNT:
        raise RuntimeError("a guest did not echo")


class _NoGate:
    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        raise RuntimeError("an echo asks for nothing")


@contextmanager
def direct() -> Iterator[Contender]:
    """The runtime as it stands in the worker and in process."""
    engine = make_engine(slots=1)
    timer = EpochTimer(engine)
    runtime = DirectRuntime(engine, timer)
    loaded = runtime.load(runtime.compile(ECHO))
    bounds = Bounds(fuel=10_000_000, memory_bytes=64 << 20, table_elements=100_000, wall_ms=10_000)

    def once() -> End:
        return runtime.run(loaded, GuestCall(input=INPUT, bounds=bounds, grants=Grants(), gate=_NoGate()))

    yield Contender(name="palyra, in process", run=timed(lambda: [once().output for _ in range(COUNT)], check))
    timer.close()


@contextmanager
def jailed(ground: Ground) -> Iterator[Contender]:
    host = probe(home=str(Path.home()), state_home=str(ground.home), search_path=("/usr/bin", "/bin"))
    plan = WasmPlan(
        module_sha256=sha256_hex(ECHO),
        guest=GuestKind.CORE,
        skill_id="bench.echo",
        tool_id="bench.echo.run",
        input=INPUT,
        wasm=WasmLimits(wall_ms=10_000),
    )

    async def answer(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        return HostAnswer()

    with asyncio.Runner() as runner:
        executor = ProcessExecutor(host)
        house = GuestHouse(executor, host, WasmRuntimeConfig(), Path(ground.home) / "compiled-bench")

        async def many() -> list[tuple[Execution, bytes | None]]:
            return [await house.run(plan, ECHO, answer) for _ in range(COUNT)]

        def work() -> list[bytes | None]:
            return [output for _, output in runner.run(many())]

        async def close() -> None:
            await house.close()
            await executor.close()

        try:
            yield Contender(name="palyra, jailed worker", run=timed(work, check))
        finally:
            runner.run(close())


def wrapper() -> Contender:
    """wasmtime-py as its documentation has it: a linker made once, an instance and a store for every call."""
    config = Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    engine = Engine(config)
    linker, answers = Linker(engine), list[bytes | None]()
    two = FuncType([ValType.i32(), ValType.i32()], [ValType.i32()])

    def memory(caller: Caller) -> Memory:
        found = caller["memory"]
        assert isinstance(found, Memory)
        return found

    def read(caller: Caller, pointer: int, capacity: int) -> int:
        memory(caller).write(caller, INPUT, pointer)
        return len(INPUT)

    def write(caller: Caller, pointer: int, count: int) -> int:
        answers.append(bytes(memory(caller).read(caller, pointer, pointer + count)))
        return 0

    linker.define_func(abi.HOST, "input-read", two, read, access_caller=True)
    linker.define_func(abi.HOST, "output", two, write, access_caller=True)
    pre = linker.instantiate_pre(Module(engine, ECHO))

    def once() -> None:
        store = Store(engine)
        store.set_limits(memory_size=64 << 20, table_elements=100_000)
        store.set_fuel(10_000_000)
        store.set_epoch_deadline(1000)
        run = pre.instantiate(store).exports(store)["run"]
        assert isinstance(run, WasmFunc)
        run(store)
        store.close()

    def work() -> list[bytes | None]:
        answers.clear()
        for _ in range(COUNT):
            once()
        return list(answers)

    return Contender(name=WRAPPER, run=timed(work, check))


def extism() -> AbstractContextManager[Contender]:
    return worker(EXTISM, "extism_worker.py", str(COUNT))


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        yield Row(
            name="wasm",
            title=f"Tier A: {COUNT} calls of a guest, each with a fresh store",
            note="Ours bounds fuel, memory, time, host calls and bytes. The peers' calls are the bare libraries', "
            "without policy, journal or jail.",
            contenders=(stack.enter_context(direct()), wrapper(), stack.enter_context(extism())),
            aims=(Aim(peer=WRAPPER, at_most=0.25), Aim(peer=EXTISM, at_most=0.1)),
        )
