"""The same core surface straight over wasmtime's C interface: what `core` does, six times faster. A switch, not a rule.

The wrapper spends its time converting values it then converts back; here host functions read and write the guest's raw
numbers, and the store's own data says whose call it is. Everything else is `core`'s: the module check, the surface, the
ends. `usable()` proves the layer against the installed library (symbols, a guest that calls back, traps and runs
dry) before it is trusted; without that proof the wrapper serves.

Unchecked calls are memory-unsafe when a signature is wrong, so a module's `run` and its imports are checked at load
(`core.check_module`), and the linker checks the imports' types again. A trap is returned by the host function itself:
nothing is raised through foreign frames.
"""

from __future__ import annotations

import ctypes
import itertools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    addressof,
    c_bool,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint64,
    c_void_p,
)
from typing import Any, Final

from wasmtime import Engine, FuncType, Linker, Module, Trap, ValType, WasmtimeError, wat2wasm
from wasmtime import _ffi as ffi

from palyra.inside.wasm import abi
from palyra.inside.wasm.core import (
    CoreRuntime,
    InvalidModule,
    Loaded,
    check_module,
    classify,
    last_line,
)
from palyra.inside.wasm.engine import TABLES_PER_MODULE, EpochTimer, make_engine, ticks_for
from palyra.inside.wasm.guest import Bounds, End, EndKind, Exceeded, Grants, GuestCall, Refused
from palyra.inside.wasm.surface import U32, Function, answer, functions

_MEMORY_KIND: Final = 3
_FUNC_KIND: Final = 0
_STOPPED: Final = b"stopped by the host"


class _Raw(ctypes.Union):
    _fields_ = (("i32", c_int32), ("i64", c_int64), ("all", c_uint8 * 16))


class _Extern(ctypes.Structure):
    _fields_ = (("kind", c_uint8), ("of", c_uint64 * 3))


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return CFUNCTYPE(result, *arguments)((name, ffi.dll))


_P = c_void_p
_store_new = _function("wasmtime_store_new", _P, _P, _P, _P)
_store_context = _function("wasmtime_store_context", _P, _P)
_store_delete = _function("wasmtime_store_delete", None, _P)
_store_limiter = _function("wasmtime_store_limiter", None, _P, *([c_int64] * 5))
_set_fuel = _function("wasmtime_context_set_fuel", _P, _P, c_uint64)
_get_fuel = _function("wasmtime_context_get_fuel", _P, _P, _P)
_set_deadline = _function("wasmtime_context_set_epoch_deadline", None, _P, c_uint64)
_get_data = _function("wasmtime_context_get_data", _P, _P)
_instantiate = _function("wasmtime_instance_pre_instantiate", _P, _P, _P, _P, _P)
_export = _function("wasmtime_instance_export_get", c_bool, _P, _P, c_char_p, c_size_t, _P)
_call = _function("wasmtime_func_call_unchecked", _P, _P, _P, _P, c_size_t, _P)
_caller_context = _function("wasmtime_caller_context", _P, _P)
_caller_export = _function("wasmtime_caller_export_get", c_bool, _P, c_char_p, c_size_t, _P)
_memory_data = _function("wasmtime_memory_data", _P, _P, _P)
_memory_size = _function("wasmtime_memory_data_size", c_size_t, _P, _P)
_trap_new = _function("wasmtime_trap_new", _P, c_char_p, c_size_t)
_Callback = CFUNCTYPE(c_size_t, _P, _P, POINTER(_Raw), c_size_t)
_define = _function(
    "wasmtime_linker_define_func_unchecked",
    *(_P, _P, c_char_p, c_size_t, c_char_p, c_size_t, _P, _Callback, _P, _P),
)


class DirectRuntime:
    """`CoreRuntime`'s shape. Artefacts are the same: one may compile for the other."""

    def __init__(self, engine: Engine, timer: EpochTimer) -> None:
        self._engine = engine
        self._timer = timer
        self._address = _address(engine.ptr())
        self._wrapper = CoreRuntime(engine, timer)
        self._live: dict[int, GuestCall] = {}
        self._numbers = itertools.count(1)
        self._linker = Linker(engine)
        self._kept: list[object] = []
        """Callbacks and types that wasmtime holds by address."""
        table = functions()
        for module, names in abi.IMPORTS.items():
            for name, parameters in names.items():
                self._offer(module, name, parameters, table[name])

    def compile(self, wasm: bytes) -> bytes:
        return self._wrapper.compile(wasm)

    def load(self, artefact: bytes, *, memories: int = 1) -> Loaded:
        try:
            module = Module.deserialize(self._engine, artefact)
            check_module(module)
            return Loaded(module, self._linker.instantiate_pre(module))
        except WasmtimeError as error:
            raise InvalidModule(last_line(error)) from None

    def run(self, loaded: Loaded, call: GuestCall) -> End:
        bounds, number = call.bounds, next(self._numbers)
        self._live[number] = call
        store = _store_new(self._address, number, None)
        try:
            context = _store_context(store)
            _store_limiter(store, bounds.memory_bytes, bounds.table_elements, 1, TABLES_PER_MODULE, 1)
            _set_fuel(context, bounds.fuel)
            _set_deadline(context, ticks_for(bounds.wall_ms))
            self._timer.begin()
            return self._run(context, loaded, call)
        finally:
            self._timer.finish()
            _store_delete(store)
            del self._live[number]

    def _run(self, context: int, loaded: Loaded, call: GuestCall) -> End:
        instance, trap, found, result = (c_uint64 * 2)(), c_void_p(), _Extern(), (_Raw * 1)()
        error = _instantiate(_address(loaded.pre.ptr()), context, addressof(instance), addressof(trap))
        memory = 0
        if not error and not trap.value:
            if not _export(context, addressof(instance), b"run", 3, addressof(found)) or found.kind != _FUNC_KIND:
                return End(EndKind.INVALID, "The module must export run: () -> i32.")
            error = _call(context, addressof(found) + 8, addressof(result), 1, addressof(trap))
            memory = _memory_of(context, instance)
        if error or trap.value or call.fault is not None:
            return _ended(context, call, error, trap, memory)
        return End(
            EndKind.RETURNED,
            exit_code=result[0].i32,
            output=call.output,
            fuel=call.bounds.fuel - _fuel_left(context),
            memory_bytes=memory,
        )

    def _offer(self, module: str, name: str, parameters: int, function: Function) -> None:
        live, places = self._live, range(parameters)

        def host(environment: int, caller: int, numbers: Any, count: int) -> int:
            call: GuestCall | None = None
            try:
                context = _caller_context(caller)
                call = live[_get_data(context)]
                given = tuple([numbers[place].i32 for place in places]) if parameters else ()
                numbers[0].i32 = answer(function, call, _CallerMemory(caller, context), given)
            except Exceeded as exceeded:
                return _stop(call, exceeded)
            except BaseException as error:  # noqa: BLE001 — nothing may pass through foreign frames
                return _stop(call, Exceeded(EndKind.BROKEN, f"A host function failed: {type(error).__name__}."))
            return 0

        callback = _Callback(host)
        kind = FuncType([ValType.i32()] * parameters, [ValType.i32()])
        self._kept += [callback, kind]
        names = module.encode(), name.encode()
        error = _define(
            _address(self._linker.ptr()),
            *(names[0], len(names[0]), names[1], len(names[1])),
            *(_address(kind.ptr()), callback, None, None),
        )
        if error:
            raise RuntimeError(f"{name} cannot be linked")


class _CallerMemory:
    """Looked up only when a function touches memory, and afresh each time."""

    __slots__ = ("_base", "_caller", "_context", "_size")

    def __init__(self, caller: int, context: int) -> None:
        self._caller, self._context = caller, context
        self._base, self._size = 0, -1

    def read(self, pointer: int, count: int) -> bytes:
        return ctypes.string_at(self._at(pointer, count), count)

    def write(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(self._at(pointer, len(data)), data, len(data))

    def _at(self, pointer: int, count: int) -> int:
        if self._size < 0:
            found = _Extern()
            if not _caller_export(self._caller, b"memory", 6, addressof(found)) or found.kind != _MEMORY_KIND:
                raise Refused(abi.BAD_ARGUMENT)
            at = addressof(found) + 8
            self._base, self._size = _memory_data(self._context, at) or 0, _memory_size(self._context, at)
        pointer &= U32
        if pointer + count > self._size:
            raise Refused(abi.BAD_ARGUMENT)
        return self._base + pointer


def _stop(call: GuestCall | None, why: Exceeded) -> int:
    if call is not None and call.fault is None:
        call.fault = why
    trap: int = _trap_new(_STOPPED, len(_STOPPED))
    return trap


def _ended(context: int, call: GuestCall, error: int | None, trap: c_void_p, memory: int) -> End:
    raised: Trap | WasmtimeError | None = None
    if error:
        raised = WasmtimeError._from_ptr(ctypes.cast(error, POINTER(ffi.wasmtime_error_t)))
    elif trap.value:
        raised = Trap._from_ptr(ctypes.cast(trap, POINTER(ffi.wasm_trap_t)))
    if call.fault is not None:
        kind, detail = call.fault.kind, call.fault.detail
    else:
        assert raised is not None
        kind, detail = classify(raised, call, memory)
    interrupted = kind is EndKind.TIMEOUT and call.fault is None
    fuel = None if interrupted else call.bounds.fuel - _fuel_left(context)
    return End(kind, detail, output=call.output, fuel=fuel, memory_bytes=memory)


def _fuel_left(context: int) -> int:
    left = c_uint64(0)
    _get_fuel(context, addressof(left))
    return left.value


def _memory_of(context: int, instance: Any) -> int:
    found = _Extern()
    if not _export(context, addressof(instance), b"memory", 6, addressof(found)) or found.kind != _MEMORY_KIND:
        return 0
    size: int = _memory_size(context, addressof(found) + 8)
    return size


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, c_void_p).value or 0


_PROOF = f"""(module (import "{abi.HOST}" "input-len" (func $len (result i32)))
  (import "{abi.HOST}" "input-read" (func $read (param i32 i32) (result i32)))
  (import "{abi.HOST}" "output" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (drop (call $read (i32.const 0) (call $len)))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 116)) (then (unreachable)))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 108)) (then (loop $again (br $again))))
    (drop (call $out (i32.const 0) (call $len)))
    (i32.const 42)))"""


class _NoGate:
    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        raise Refused(abi.NOT_GRANTED)


def usable() -> bool:
    """Whether this layer gives the wrapper's own answers with the library that is there.

    Which version that is was checked by who planned the worker: inside its jail no package index is visible.
    """
    try:
        engine = make_engine()
        timer = EpochTimer(engine)
        try:
            direct, wrapper = DirectRuntime(engine, timer), CoreRuntime(engine, timer)
            artefact = wrapper.compile(bytes(wat2wasm(_PROOF)))
            return all(_same(direct, wrapper, artefact, given) for given in (b"echo", b"trap", b"loop"))
        finally:
            timer.close()
    except Exception:  # noqa: BLE001 — whatever is wrong with it, the wrapper serves
        return False


def _same(direct: DirectRuntime, wrapper: CoreRuntime, artefact: bytes, given: bytes) -> bool:
    bounds = Bounds(fuel=100_000, memory_bytes=65536, table_elements=0, wall_ms=10_000)
    first, second = (
        runtime.run(runtime.load(artefact), GuestCall(input=given, bounds=bounds, grants=Grants(), gate=_NoGate()))
        for runtime in (direct, wrapper)
    )
    return first == second
