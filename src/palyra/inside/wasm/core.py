"""Runs core modules through wasmtime's Python wrapper: the plain layer, and the one that `direct` must agree with.

Rules: a fresh store for every call, dropped whatever happened; a module is looked at before it is linked (only our
imports with our types, `run: () -> i32`, one exported memory); a host function never raises: the wrapper parks a raised
exception in a global of the process, where another thread's guest would receive it. So the host's reason is kept with
the call, and the guest is stopped by taking its fuel away.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wasmtime import (
    Caller,
    Engine,
    FuncType,
    Instance,
    InstancePre,
    Linker,
    Module,
    Store,
    Trap,
    TrapCode,
    ValType,
    WasmtimeError,
)
from wasmtime import Func as WasmFunc
from wasmtime import Memory as WasmMemory
from wasmtime import _ffi as ffi

from palyra.inside.wasm import abi
from palyra.inside.wasm.engine import TABLES_PER_MODULE, EpochTimer, ticks_for
from palyra.inside.wasm.guest import End, EndKind, Exceeded, GuestCall, Refused
from palyra.inside.wasm.surface import U32, Function, answer, functions

MAGIC = b"\0asm\x01\0\0\0"
_PAGE = 65536


class InvalidModule(ValueError):
    """The module cannot be run by this surface, whatever it is granted."""


@dataclass(frozen=True)
class Loaded:
    module: Module
    pre: InstancePre
    address: int = 0
    """Of `pre`, for `direct`."""


class CoreRuntime:
    def __init__(self, engine: Engine, timer: EpochTimer) -> None:
        self._engine = engine
        self._timer = timer
        self._live: dict[int, GuestCall] = {}
        """By the address of the store's context: host functions are shared by all calls."""
        self._linker = Linker(engine)
        table = functions()
        for module, names in abi.IMPORTS.items():
            for name, parameters in names.items():
                kind = FuncType([ValType.i32()] * parameters, [ValType.i32()])
                self._linker.define_func(module, name, kind, self._host(table[name]), access_caller=True)

    def compile(self, wasm: bytes) -> bytes:
        """Bytes without the magic would be read as text by wasmtime: they are refused first."""
        if not wasm.startswith(MAGIC):
            raise InvalidModule("These bytes are not a WebAssembly core module.")
        try:
            module = Module(self._engine, wasm)
        except WasmtimeError as error:
            raise InvalidModule(f"wasmtime refuses the module: {last_line(error)}") from None
        check_module(module)
        return bytes(module.serialize())

    def load(self, artefact: bytes, *, memories: int = 1) -> Loaded:
        """Only of bytes this installation compiled itself: an artefact is native code. A core module has one memory."""
        try:
            module = Module.deserialize(self._engine, artefact)
            check_module(module)
            return Loaded(module, self._linker.instantiate_pre(module))
        except WasmtimeError as error:
            raise InvalidModule(last_line(error)) from None

    def run(self, loaded: Loaded, call: GuestCall) -> End:
        bounds = call.bounds
        store = Store(self._engine)
        store.set_limits(
            memory_size=bounds.memory_bytes,
            table_elements=bounds.table_elements,
            instances=1,
            tables=TABLES_PER_MODULE,
            memories=1,
        )
        store.set_fuel(bounds.fuel)
        store.set_epoch_deadline(ticks_for(bounds.wall_ms))
        address = context_address(store)
        self._live[address] = call
        try:
            self._timer.begin()
            return self._run(store, loaded, call)
        finally:
            self._timer.finish()
            del self._live[address]
            store.close()

    def _run(self, store: Store, loaded: Loaded, call: GuestCall) -> End:
        instance: Instance | None = None
        try:
            instance = loaded.pre.instantiate(store)
            run = instance.exports(store)[abi.RUN]
            assert isinstance(run, WasmFunc)  # check_module saw it
            exit_code = run(store)
        except (Trap, WasmtimeError) as error:
            return self._ended(store, call, error, memory_of(store, instance))
        if call.fault is not None:
            return self._ended(store, call, None, memory_of(store, instance))
        return End(
            EndKind.RETURNED,
            exit_code=exit_code,
            output=call.output,
            fuel=fuel_used(store, call),
            memory_bytes=memory_of(store, instance),
        )

    def _ended(self, store: Store, call: GuestCall, error: Trap | WasmtimeError | None, memory_bytes: int) -> End:
        if call.fault is not None:
            kind, detail = call.fault.kind, call.fault.detail
        else:
            assert error is not None
            kind, detail = classify(error, call, memory_bytes)
        interrupted = kind is EndKind.TIMEOUT and call.fuel_left is None
        fuel = None if interrupted else fuel_used(store, call)
        return End(kind, detail, output=call.output, fuel=fuel, memory_bytes=memory_bytes)

    def _host(self, function: Function) -> Callable[..., int]:
        return partial(self._serve, function)

    def _serve(self, function: Function, caller: Caller, *numbers: int) -> int:
        call = self._live[context_address(caller)]
        try:
            return answer(function, call, CallerMemory(caller), numbers)
        except Exceeded as exceeded:
            call.fault = call.fault or exceeded
        except Exception as error:  # noqa: BLE001 — nothing may pass through the wrapper's trampoline
            call.fault = call.fault or Exceeded(EndKind.BROKEN, f"A host function failed: {type(error).__name__}.")
        stop(caller, call)
        return abi.FAILED


class CallerMemory:
    """The caller's memory, looked up afresh: it may have grown since the last host call."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def read(self, pointer: int, count: int) -> bytes:
        base, pointer = self._at(pointer, count)
        return ctypes.string_at(base + pointer, count)

    def write(self, pointer: int, data: bytes) -> None:
        base, pointer = self._at(pointer, len(data))
        ctypes.memmove(base + pointer, data, len(data))

    def _at(self, pointer: int, count: int) -> tuple[int, int]:
        memory = self._caller.get(abi.MEMORY)
        pointer &= U32
        if not isinstance(memory, WasmMemory) or pointer + count > memory.data_len(self._caller):
            raise Refused(abi.BAD_ARGUMENT)
        return ctypes.cast(memory.data_ptr(self._caller), ctypes.c_void_p).value or 0, pointer


def context_address(store: Store | Caller) -> int:
    return ctypes.cast(store._context(), ctypes.c_void_p).value or 0


def stop(caller: Caller, call: GuestCall) -> None:
    left = ctypes.c_uint64(0)
    for error in (
        ffi.wasmtime_context_get_fuel(caller._context(), ctypes.byref(left)),
        ffi.wasmtime_context_set_fuel(caller._context(), 0),
    ):
        if ctypes.cast(error, ctypes.c_void_p).value is not None:
            raise WasmtimeError._from_ptr(error)
    call.fuel_left = left.value if call.fuel_left is None else call.fuel_left


def fuel_used(store: Store, call: GuestCall) -> int:
    """Fuel that was taken away to stop the guest is not fuel it used."""
    return call.bounds.fuel - (store.get_fuel() if call.fuel_left is None else call.fuel_left)


def memory_of(store: Store, instance: Instance | None) -> int:
    memory = instance.exports(store).get(abi.MEMORY) if instance is not None else None
    return memory.data_len(store) if isinstance(memory, WasmMemory) else 0


def check_module(module: Module) -> None:
    for wanted in module.imports:
        known = abi.IMPORTS.get(wanted.module, {}).get(wanted.name or "")
        if known is None:
            raise InvalidModule(f"The module imports {wanted.module} {wanted.name}, which is not offered.")
        if not _is_function(wanted.type, parameters=known):
            raise InvalidModule(f"The module imports {wanted.name} with the wrong type.")
    exports = {export.name: export.type for export in module.exports}
    if not _is_function(exports.get(abi.RUN), parameters=0):
        raise InvalidModule("The module must export run: () -> i32.")


def _is_function(found: object, *, parameters: int) -> bool:
    return isinstance(found, FuncType) and (
        [str(kind) for kind in found.params] == ["i32"] * parameters
        and [str(kind) for kind in found.results] == ["i32"]
    )


_TRAPS = {TrapCode.OUT_OF_FUEL: EndKind.OUT_OF_FUEL, TrapCode.INTERRUPT: EndKind.TIMEOUT}


def classify(error: Trap | WasmtimeError, call: GuestCall, memory_bytes: int) -> tuple[EndKind, str]:
    bounds = call.bounds
    code = error.trap_code if isinstance(error, Trap) else None
    match _TRAPS.get(code) if code is not None else None:
        case EndKind.OUT_OF_FUEL:
            return EndKind.OUT_OF_FUEL, f"The guest used up its fuel of {bounds.fuel}."
        case EndKind.TIMEOUT:
            return EndKind.TIMEOUT, f"The guest ran longer than {bounds.wall_ms} ms."
    said = last_line(error)
    if code is None and ("memory" in said or "table" in said) and ("limit" in said or "exceeds" in said):
        return EndKind.MEMORY, f"The module asks for more than is allowed: {said}."
    if code is not None and memory_bytes + _PAGE > bounds.memory_bytes:
        # a refused growth is an answer to the guest (-1); one that then gives up has met the limit
        return EndKind.MEMORY, f"The guest trapped with all of its {bounds.memory_bytes} bytes of memory in use."
    return EndKind.TRAPPED, f"The guest trapped: {code.name.lower().replace('_', ' ') if code is not None else said}."


def last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
