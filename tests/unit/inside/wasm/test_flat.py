"""Calls leave nothing behind: neither memory nor threads, and no engine in a process that only wires things up.

`make soak` runs 100 000 of each; here there are enough to see a leak of a few hundred bytes a call.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from palyra.inside.wasm.core import CoreRuntime
from palyra.inside.wasm.direct import DirectRuntime
from palyra.inside.wasm.engine import EpochTimer, make_engine
from palyra.inside.wasm.guest import End
from tests.unit.inside.wasm.guests import ECHO, call, module

CALLS = int(os.environ.get("PALYRA_GUEST_CALLS", "8000"))
GROWTH_KIB = 4096
TRAPPING = module("log", body="(drop (call $log (i32.const 0) (i32.const 0) (i32.const 9))) (unreachable)")


def resident_kib() -> int:
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize(("layer", "slots"), [(CoreRuntime, 0), (DirectRuntime, 0), (DirectRuntime, 1)])
@pytest.mark.parametrize("guest", [ECHO, TRAPPING], ids=["echo", "trap"])
def test_memory_stays_flat_over_many_calls(layer: type[CoreRuntime | DirectRuntime], slots: int, guest: bytes) -> None:
    engine = make_engine(slots=slots)
    timer = EpochTimer(engine)
    runtime = layer(engine, timer)
    loaded = runtime.load(runtime.compile(guest))

    def once() -> End:
        return runtime.run(loaded, call(b"[1]"))  # type: ignore[arg-type]

    for _ in range(CALLS // 8):
        once()
    before, threads = resident_kib(), threading.active_count()
    for _ in range(CALLS):
        once()
    assert resident_kib() - before < GROWTH_KIB
    assert threading.active_count() == threads
    timer.close()


def test_a_process_that_only_wires_things_up_has_no_engine_to_leave_to_a_fork() -> None:
    seen = "import sys, palyra.wiring.embedded, palyra.cli.call; print('wasmtime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
