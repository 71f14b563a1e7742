"""wasmtime's engine as tier A configures it, and the timer that makes its deadlines hold.

Rules: fuel and epochs always on; no threads, no 64-bit or several memories, no garbage collector; traps without signal
handlers, so that an embedder's own handlers (or pytest's) cannot meet ours. The version is pinned and looked at before
anything is compiled or deserialised: an artefact of another version is native code of another meaning.

An epoch ticker in Python is no clock: with another thread holding the interpreter a 100 ms deadline became seconds. So
a POSIX timer with a thread of its own calls wasmtime's function directly; no Python runs on that thread. It ticks from
a guest's start until its owner, finding that no other came for a while, lets it rest.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import threading
from typing import Final

from wasmtime import Config, Engine
from wasmtime import _ffi as ffi

WASMTIME: Final = "50.0.1"
TICK_MS: Final = 10
MAX_WASM_STACK: Final = 512 * 1024
TABLES_PER_MODULE: Final = 4
MOST_TABLE_ELEMENTS: Final = 1_000_000
KEPT_BYTES: Final = 65536
"""Of a place's memory that is cleared by writing rather than by giving it back."""
_SIGEV_THREAD: Final = 2
_CLOCK_MONOTONIC: Final = 1


class WrongRuntime(RuntimeError):
    """wasmtime is not what this layer was written and tested for."""


def make_config(*, components: bool = False) -> Config:
    config = Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.signals_based_traps = False
    config.max_wasm_stack = MAX_WASM_STACK
    config.parallel_compilation = False
    config.memory_may_move = components  # `direct` keeps a memory's base through a call
    for feature in ("threads", "memory64", "multi_memory", "gc", "function_references", "exceptions"):
        setattr(config, f"wasm_{feature}", False)
    if components:  # wasmtime's own glue between two components of one touches the memories of both
        config.wasm_multi_memory = True
    return config


def make_engine(*, components: bool = False, slots: int = 0) -> Engine:
    """`slots`: core guests that run at once in places made ahead, which halves a call; 0: without places."""
    config = make_config(components=components)
    if slots:
        _make_places(config, slots)
    return Engine(config)


def _make_places(config: Config, slots: int) -> None:
    """Bound, but not on the wrapper's Config. Address space alone: it is no memory before a guest touches it."""
    places = ffi.wasmtime_pooling_allocation_config_new()
    for name, value in (
        ("total_core_instances", slots),
        ("total_component_instances", 1),
        ("total_stacks", 1),
        ("total_gc_heaps", 1),
        ("total_memories", slots),
        ("total_tables", slots * TABLES_PER_MODULE),
        ("max_memories_per_module", 1),
        ("max_tables_per_module", TABLES_PER_MODULE),
        ("table_elements", MOST_TABLE_ELEMENTS),
        ("linear_memory_keep_resident", KEPT_BYTES),
    ):
        getattr(ffi, f"wasmtime_pooling_allocation_config_{name}_set")(places, value)
    ffi.wasmtime_pooling_allocation_strategy_set(config.ptr(), places)
    ffi.wasmtime_pooling_allocation_config_delete(places)


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attribute", ctypes.c_void_p),
        ("rest", ctypes.c_byte * 32),
    )


class _Interval(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class EpochTimer:
    """Increments an engine's epoch every `TICK_MS` between a `begin` and its `finish`, and on until `rest`: where guest
    follows guest, each is saved two calls of the system."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine  # the timer holds its address
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._lock = threading.Lock()
        self._running = 0
        self._ticks = False
        self._ticking = _Interval(0, TICK_MS * 1_000_000, 0, TICK_MS * 1_000_000)
        self._still = _Interval(0, 0, 0, 0)
        self._timer = ctypes.c_void_p()
        event = _SigEvent(
            value=ctypes.cast(engine.ptr(), ctypes.c_void_p).value,
            notify=_SIGEV_THREAD,
            function=ctypes.cast(ffi.dll.wasmtime_engine_increment_epoch, ctypes.c_void_p).value,
        )
        self._check(self._libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)))

    def begin(self) -> None:
        with self._lock:
            self._running += 1
            if not self._ticks:
                self._set(self._ticking)
                self._ticks = True

    def finish(self) -> None:
        with self._lock:
            self._running -= 1

    def rest(self) -> None:
        """For whoever has nothing to run just now: an idle process is not woken a hundred times a second."""
        with self._lock:
            if self._ticks and not self._running and self._timer.value is not None:
                self._set(self._still)
                self._ticks = False

    def close(self) -> None:
        with self._lock:
            if self._timer.value is not None:
                self._libc.timer_delete(self._timer)
                self._timer = ctypes.c_void_p()

    def _set(self, interval: _Interval) -> None:
        self._check(self._libc.timer_settime(self._timer, 0, ctypes.byref(interval), None))

    def _check(self, result: int) -> None:
        if result:
            code = ctypes.get_errno()
            raise OSError(code, f"the epoch timer: {os.strerror(code)}")


def ticks_for(wall_ms: int) -> int:
    """One more than fits: the first tick may come at once, and a deadline of zero traps before the first step."""
    return max(1, -(-wall_ms // TICK_MS)) + 1


def check_version() -> None:
    found = importlib.metadata.version("wasmtime")
    if found != WASMTIME:
        raise WrongRuntime(f"wasmtime {found} is installed; tier A needs {WASMTIME}")
