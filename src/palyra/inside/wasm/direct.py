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
import threading
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    addressof,
    c_bool,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
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
_INTS_A_VALUE: Final = 4
"""A raw value of wasmtime's has sixteen bytes."""
_QUICK_BYTES: Final = 1 << 20
"""A guest's memory that is given back in no time worth mentioning."""
_TRAP, _FUNC, _MEMORY, _RESULT, _FUEL = 2, 4, 8, 12, 14
"""Where in a place's words each thing lies; the instance comes first. An export is its kind, then what it is."""


def _function(name: str, result: Any, *arguments: Any, long: bool = False) -> Any:
    """`long`: it may run for a while, and others go on meanwhile. The rest keep the interpreter: with a busy thread
    beside, each time it is given away takes milliseconds to get back."""
    return (CFUNCTYPE if long else PYFUNCTYPE)(result, *arguments)((name, ffi.dll))


_P = c_void_p
_store_new = _function("wasmtime_store_new", _P, _P, _P, _P)
_store_context = _function("wasmtime_store_context", _P, _P)
_store_delete = _function("wasmtime_store_delete", None, _P)
_store_delete_large = _function("wasmtime_store_delete", None, _P, long=True)
_store_limiter = _function("wasmtime_store_limiter", None, _P, *([c_int64] * 5))
_set_fuel = _function("wasmtime_context_set_fuel", _P, _P, c_uint64)
_get_fuel = _function("wasmtime_context_get_fuel", _P, _P, _P)
_set_deadline = _function("wasmtime_context_set_epoch_deadline", None, _P, c_uint64)
_instantiate = _function("wasmtime_instance_pre_instantiate", _P, _P, _P, _P, _P, long=True)
_export = _function("wasmtime_instance_export_get", c_bool, _P, _P, c_char_p, c_size_t, _P)
_call = _function("wasmtime_func_call_unchecked", _P, _P, _P, _P, c_size_t, _P, long=True)
_caller_export = _function("wasmtime_caller_export_get", c_bool, _P, c_char_p, c_size_t, _P)
_memory_data = _function("wasmtime_memory_data", _P, _P, _P)
_memory_size = _function("wasmtime_memory_data_size", c_size_t, _P, _P)
_trap_new = _function("wasmtime_trap_new", _P, c_char_p, c_size_t)
_Callback = CFUNCTYPE(c_size_t, _P, _P, POINTER(c_int32), c_size_t)
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
        self._here = _Here()
        self._places: list[_Place] = []
        """Not in use: one is made when several guests run at once for the first time."""
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
            pre = self._linker.instantiate_pre(module)
            return Loaded(module, pre, _address(pre.ptr()))
        except WasmtimeError as error:
            raise InvalidModule(last_line(error)) from None

    def run(self, loaded: Loaded, call: GuestCall) -> End:
        bounds, here = call.bounds, self._here
        try:
            place = self._places.pop()
        except IndexError:
            place = _Place()
        outer = here.place
        store, delete = _store_new(self._address, None, None), _store_delete_large
        try:
            context = _store_context(store)
            _store_limiter(store, bounds.memory_bytes, bounds.table_elements, 1, TABLES_PER_MODULE, 1)
            _set_fuel(context, bounds.fuel)
            _set_deadline(context, ticks_for(bounds.wall_ms))
            place.begin(call, context)
            here.place = place
            self._timer.begin()
            end = _run(place, loaded.address)
            delete = _store_delete if end.memory_bytes <= _QUICK_BYTES else _store_delete_large
        finally:
            self._timer.finish()
            here.place = outer
            delete(store)
            self._places.append(place)
        return end

    def _offer(self, module: str, name: str, parameters: int, function: Function) -> None:
        here, end = self._here, parameters * _INTS_A_VALUE

        def host(environment: int, caller: int, numbers: Any, count: int) -> int:
            place = here.place
            try:
                place.caller = caller
                given = numbers[:end:_INTS_A_VALUE] if end else ()
                numbers[0] = answer(function, place.call, place, given)
            except Exceeded as exceeded:
                return _stop(place, exceeded)
            except BaseException as error:  # noqa: BLE001 — nothing may pass through foreign frames
                return _stop(place, Exceeded(EndKind.BROKEN, f"A host function failed: {type(error).__name__}."))
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


class _Here(threading.local):
    """The call that this thread is in: its guest calls back on the thread it was called on."""

    place: Any = None


class _Place:
    """What wasmtime writes its answers into, for one call at a time, and the guest's memory as host functions see it.

    The memory's base is asked for once a call: the engine's configuration rules out that it moves. Its size can only
    grow, so it is asked for again before a pointer is refused.
    """

    __slots__ = ("_at_memory", "_base", "_seen", "at", "call", "caller", "context", "ints", "size", "words")

    def __init__(self) -> None:
        self.words = (c_uint64 * 16)()
        self.ints = (c_int32 * 32).from_buffer(self.words)
        self.at = addressof(self.words)
        self._at_memory = self.at + 8 * _MEMORY + 8
        self.call: Any = None
        self.context = self.caller = self._base = 0
        self.size, self._seen = -1, False

    def begin(self, call: GuestCall, context: int) -> None:
        self.call, self.context = call, context
        self.words[_TRAP] = 0
        self.size, self._seen = -1, False

    def see_memory(self) -> None:
        """Once there is an instance."""
        found = _export(self.context, self.at, b"memory", 6, self.at + 8 * _MEMORY)
        self._seen = found and self.ints[2 * _MEMORY] & 0xFF == _MEMORY_KIND

    def measure(self) -> int:
        size: int = _memory_size(self.context, self._at_memory) if self._seen else 0
        return size

    def read(self, pointer: int, count: int) -> bytes:
        return ctypes.string_at(self._at(pointer, count), count)

    def write(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(self._at(pointer, len(data)), data, len(data))

    def _at(self, pointer: int, count: int) -> int:
        pointer &= U32
        if pointer + count > self.size:
            self._look()
            if pointer + count > self.size:
                raise Refused(abi.BAD_ARGUMENT)
        return self._base + pointer

    def _look(self) -> None:
        if not self._seen:  # a start function calls before there is an instance to ask
            found = _caller_export(self.caller, b"memory", 6, self.at + 8 * _MEMORY)
            if not found or self.ints[2 * _MEMORY] & 0xFF != _MEMORY_KIND:
                raise Refused(abi.BAD_ARGUMENT)
            self._seen = True
        if self.size < 0:
            self._base = _memory_data(self.context, self._at_memory) or 0
        self.size = _memory_size(self.context, self._at_memory)

    def fuel_left(self) -> int:
        _get_fuel(self.context, self.at + 8 * _FUEL)
        left: int = self.words[_FUEL]
        return left


def _run(place: _Place, pre: int) -> End:
    call, context, at, words, ints = place.call, place.context, place.at, place.words, place.ints
    at_trap = at + 8 * _TRAP
    error = _instantiate(pre, context, at, at_trap)
    memory = 0
    if not error and not words[_TRAP]:
        found = _export(context, at, b"run", 3, at + 8 * _FUNC)
        if not found or ints[2 * _FUNC] & 0xFF != _FUNC_KIND:
            return End(EndKind.INVALID, "The module must export run: () -> i32.")
        place.see_memory()
        error = _call(context, at + 8 * _FUNC + 8, at + 8 * _RESULT, 1, at_trap)
        memory = place.measure()
    if error or words[_TRAP] or call.fault is not None:
        return _ended(place, error, memory)
    used = call.bounds.fuel - place.fuel_left()
    return End(EndKind.RETURNED, "", ints[2 * _RESULT], call.output, used, memory)


def _stop(place: Any, why: Exceeded) -> int:
    if place is not None and place.call.fault is None:
        place.call.fault = why
    trap: int = _trap_new(_STOPPED, len(_STOPPED))
    return trap


def _ended(place: _Place, error: int | None, memory: int) -> End:
    call: GuestCall = place.call
    raised: Trap | WasmtimeError | None = None
    if error:
        raised = WasmtimeError._from_ptr(ctypes.cast(error, POINTER(ffi.wasmtime_error_t)))
    elif place.words[_TRAP]:
        raised = Trap._from_ptr(ctypes.cast(c_void_p(place.words[_TRAP]), POINTER(ffi.wasm_trap_t)))
    if call.fault is not None:
        kind, detail = call.fault.kind, call.fault.detail
    else:
        assert raised is not None
        kind, detail = classify(raised, call, memory)
    interrupted = kind is EndKind.TIMEOUT and call.fault is None
    fuel = None if interrupted else call.bounds.fuel - place.fuel_left()
    return End(kind, detail, output=call.output, fuel=fuel, memory_bytes=memory)


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
