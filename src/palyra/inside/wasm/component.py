"""Runs components (the WIT package of palyra/sdk/palyra.wit) through wasmtime's Python wrapper.

Capabilities are resources that the host hands out: a guest cannot name what it was not granted. No WASI is linked,
ever: a linked wasi:http reached loopback. Only `string` crosses the boundary, never `list<u8>`, whose elements become
Python objects one by one.

Rules: as in `core` (a fresh store a call, bounds, no exception through the trampoline but wasmtime's own error, which
it hands back to the guest that caused it). Components' traps carry no code, so their messages are matched, here alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wasmtime import Engine, Store, WasmtimeError
from wasmtime.component import (
    Component,
    FuncType,
    Linker,
    LinkerInstance,
    ResourceHost,
    ResourceType,
    ResultType,
    String,
    Variant,
)

from palyra.inside.wasm import component_surface as surface
from palyra.inside.wasm.core import InvalidModule, last_line
from palyra.inside.wasm.engine import EpochTimer, ticks_for
from palyra.inside.wasm.guest import End, EndKind, Exceeded, GuestCall

MAGIC = b"\0asm\x0d\0\x01\0"
PACKAGE = "palyra:plugins/{}@0.1.0"
INTERFACES = ("http", "secrets", "storage", "channels", "log")
INSTANCES, TABLES = 256, 64
MAX_MEMORIES = 16
_KINDS = {"http": 1, "secret": 2, "storage": 3, "channel": 4}


@dataclass(frozen=True)
class Loaded:
    component: Component
    memories: int


class ComponentRuntime:
    def __init__(self, engine: Engine, timer: EpochTimer) -> None:
        self._engine = engine
        self._timer = timer
        self._current = threading.local()
        """The wrapper hands host functions no data of their own; a call never changes its thread."""
        self._linker = Linker(engine)
        with self._linker.root() as root:
            for name, define in (
                ("http", self._http),
                ("secrets", self._secrets),
                ("storage", self._storage),
                ("channels", self._channels),
                ("log", self._log),
            ):
                with root.add_instance(PACKAGE.format(name)) as instance:
                    define(instance)

    def compile(self, wasm: bytes) -> bytes:
        if not wasm.startswith(MAGIC):
            raise InvalidModule("These bytes are not a WebAssembly component.")
        try:
            component = Component(self._engine, wasm)
        except WasmtimeError as error:
            raise InvalidModule(f"wasmtime refuses the component: {last_line(error)}") from None
        self._check(component)
        return bytes(component.serialize())

    def load(self, artefact: bytes, *, memories: int = 1) -> Loaded:
        component = Component.deserialize(self._engine, artefact)
        self._check(component)
        return Loaded(component, max(1, min(memories, MAX_MEMORIES)))

    def _check(self, component: Component) -> None:
        offered = {PACKAGE.format(name) for name in INTERFACES}
        kind = component.type
        for name in kind.imports(self._engine):
            if name not in offered:
                raise InvalidModule(f"The component imports {name}, which is not offered.")
        run = kind.exports(self._engine).get("run")
        if run is None or not _is_run(run.ty):
            raise InvalidModule("The component must export run: func(input: string) -> result<string, string>.")

    def run(self, loaded: Loaded, call: GuestCall) -> End:
        bounds = call.bounds
        store = Store(self._engine)
        store.set_limits(
            memory_size=bounds.memory_bytes // loaded.memories,  # wasmtime's bound is for each memory
            table_elements=bounds.table_elements,
            instances=INSTANCES,
            tables=TABLES,
            memories=loaded.memories,
        )
        store.set_fuel(bounds.fuel)
        store.set_epoch_deadline(ticks_for(bounds.wall_ms))
        self._current.call = call
        try:
            self._timer.begin()
            return self._run(store, loaded, call)
        finally:
            self._timer.finish()
            del self._current.call
            store.close()

    def _run(self, store: Store, loaded: Loaded, call: GuestCall) -> End:
        try:
            text = call.input.decode("utf-8")
            instance = self._linker.instantiate(store, loaded.component)
            run = instance.get_func(store, "run")
            if run is None:
                return End(EndKind.INVALID, "The component must export run as a function.")
            result = run(store, text)
        except WasmtimeError as error:
            kind, detail = classify(error, call)
            return End(kind, detail, fuel=None if kind is EndKind.TIMEOUT else call.bounds.fuel - store.get_fuel())
        return _returned(result, call, fuel=call.bounds.fuel - store.get_fuel())

    def _serve(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Every host function passes here. What ends the guest is wasmtime's own error, which stays with this store."""
        call: GuestCall = self._current.call
        try:
            if call.fault is None:
                call.enter()
                return function(call, *arguments)
        except Exceeded as exceeded:
            call.fault = exceeded
        except Exception as error:  # noqa: BLE001 — see the module's rules
            call.fault = Exceeded(EndKind.BROKEN, f"A host function failed: {type(error).__name__}.")
        raise WasmtimeError("stopped by the host")

    def _add(self, instance: LinkerInstance, name: str, function: Callable[..., Any]) -> None:
        instance.add_func(name, lambda store, *arguments: self._serve(function, *arguments))

    def _resource(self, instance: LinkerInstance, name: str, family: str, lister: str) -> None:
        number = _KINDS[family]
        instance.add_resource(name, ResourceType.host(number), _nothing_to_drop)

        def granted(store: Any) -> Any:
            handed = self._serve(lambda call: range(call.grants.count(family)))
            return [ResourceHost.own(place, number).to_any(store) for place in handed]

        instance.add_func(lister, granted)

    def _method(self, instance: LinkerInstance, name: str, function: Callable[..., Any]) -> None:
        """`function(call, place, *arguments)`: the resource's number is its place among what was granted."""

        def method(store: Any, resource: Any, *arguments: Any) -> Any:
            place = self._serve(lambda call: resource.to_host(store).rep)
            return self._serve(lambda call: function(call, place, *arguments))

        instance.add_func(f"[method]{name}", method)

    def _http(self, instance: LinkerInstance) -> None:
        self._resource(instance, "endpoint", "http", "endpoints")
        self._method(instance, "endpoint.host", lambda call, place: call.grants.http[place])
        self._method(instance, "endpoint.fetch", surface.fetch)

    def _secrets(self, instance: LinkerInstance) -> None:
        self._resource(instance, "secret", "secret", "granted")
        self._method(instance, "secret.name", lambda call, place: call.grants.secrets[place])
        self._method(instance, "secret.reveal", surface.reveal)

    def _storage(self, instance: LinkerInstance) -> None:
        self._resource(instance, "root", "storage", "roots")
        self._method(instance, "root.prefix", lambda call, place: call.grants.storage[place].prefix)
        self._method(instance, "root.writable", lambda call, place: call.grants.storage[place].writable)
        self._method(instance, "root.get", surface.get)
        self._method(instance, "root.put", surface.put)
        self._method(instance, "root.delete", surface.delete)
        self._method(instance, "root.list", surface.list_keys)

    def _channels(self, instance: LinkerInstance) -> None:
        self._resource(instance, "channel", "channel", "granted")
        self._method(instance, "channel.name", lambda call, place: call.grants.channels[place])
        self._method(instance, "channel.send", surface.send)

    def _log(self, instance: LinkerInstance) -> None:
        self._add(instance, "emit", surface.emit)


def _is_run(found: object) -> bool:
    if not isinstance(found, FuncType) or [type(kind) for _, kind in found.params] != [String]:
        return False
    result = found.result
    return isinstance(result, ResultType) and isinstance(result.ok, String) and isinstance(result.err, String)


def _nothing_to_drop(store: Any, place: int) -> None: ...


def _returned(result: object, call: GuestCall, *, fuel: int) -> End:
    said = result.payload if isinstance(result, Variant) else None
    if not isinstance(result, Variant) or not isinstance(said, str):
        return End(EndKind.INVALID, "The component's run must return result<string, string>.")
    if len(said.encode()) > call.bounds.output_bytes:
        detail = f"The guest's output is larger than {call.bounds.output_bytes} bytes."
        return End(EndKind.QUOTA, detail, fuel=fuel)
    if result.tag == "ok":
        return End(EndKind.RETURNED, exit_code=0, output=said.encode(), fuel=fuel)
    return End(EndKind.RETURNED, detail=said[:500], exit_code=1, fuel=fuel)


def classify(error: WasmtimeError, call: GuestCall) -> tuple[EndKind, str]:
    if call.fault is not None:
        return call.fault.kind, call.fault.detail
    said, bounds = str(error), call.bounds
    if "all fuel consumed" in said:
        return EndKind.OUT_OF_FUEL, f"The guest used up its fuel of {bounds.fuel}."
    if "wasm trap: interrupt" in said:
        return EndKind.TIMEOUT, f"The guest ran longer than {bounds.wall_ms} ms."
    last = last_line(error)
    if ("memory" in last or "table" in last) and ("limit" in last or "exceeds" in last):
        return EndKind.MEMORY, f"The component asks for more than is allowed: {last}."
    return EndKind.TRAPPED, f"The guest trapped: {last.removeprefix('wasm trap: ')}."
