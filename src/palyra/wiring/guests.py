"""Where the guests' jail comes from: plans for the worker and for the compiler's child, made like any tier C plan.

The jail sees system folders, wasmtime's folder and the folder of our own programs, read-only, and an empty folder as
its workspace; no network, no secrets.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from palyra import inside
from palyra.canon import sha256_hex
from palyra.errors import Unenforceable
from palyra.inside.wasm import engine as wasm_engine
from palyra.model.call import Tier
from palyra.model.host import HostFacts
from palyra.model.limits import GIB, MIB, Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import Job, ProcessPlan, WorkspaceSight
from palyra.sandbox.planner import needs_for, plan_job

PYTHON = "/usr/bin/python3"
_WORKER = Limits(
    wall_ms=24 * 3600 * 1000,
    cpu_ms=24 * 3600 * 1000,
    memory_bytes=1 * GIB,
    processes=64,
    file_bytes=256 * MIB,  # wasmtime keeps images of initial memory in anonymous files
    scratch_bytes=1 * MIB,
    open_files=64,
)
_COMPILER = Limits(
    wall_ms=60_000,
    cpu_ms=40_000,
    memory_bytes=1 * GIB,
    processes=64,
    output_bytes=256 * MIB,
    file_bytes=256 * MIB,  # wasmtime keeps images of initial memory in anonymous files
    scratch_bytes=1 * MIB,
    open_files=64,
)


def worker_plan(host: HostFacts, empty: Path, *, layer: str = "direct") -> ProcessPlan:
    """`layer`: what runs core modules in it, `direct` or `wrapper`."""
    wasm_engine.check_version()
    return _plan(host, empty, program="worker.py", arguments=(layer,), limits=_WORKER)


def compiler_plan(host: HostFacts, empty: Path) -> ProcessPlan:
    return _plan(host, empty, program="compiling.py", limits=_COMPILER, streamed=True)


def artefact_meaning(host: HostFacts) -> str:
    """What a compiled module's bytes hang on, beside the module."""
    wasm_engine.check_version()
    settings = sha256_hex(Path(wasm_engine.__file__).read_bytes())
    return f"wasmtime {wasm_engine.WASMTIME} {settings} {host.machine} {_processor()}"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""
    flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    return sha256_hex(" ".join(sorted(flags.partition(":")[2].split())).encode())


def _plan(
    host: HostFacts,
    empty: Path,
    *,
    program: str,
    arguments: tuple[str, ...] = (),
    limits: Limits,
    streamed: bool = False,
) -> ProcessPlan:
    empty.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = empty.stat()
    net = NetGrant(EgressMode.STRICT, ())
    needs, wants = needs_for(Tier.C, net)
    own = Path(inside.__file__).resolve().parent
    wasmtime = _folder_of("wasmtime")
    file = own / "wasm" / program
    job = Job(
        program=PYTHON,
        program_sha256=sha256_hex(file.read_bytes()),
        argv=("python3", "-I", "-S", str(file), str(wasmtime.parent), *arguments),
        env=(("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")),
        cwd=str(empty),
        workspace=WorkspaceSight(path=str(empty), owner_uid=found.st_uid, owner_gid=found.st_gid),
        read_roots=(str(own), str(wasmtime)),
        limits=limits,
        net=net,
        tier=Tier.C,
        needs=needs,
        wants=wants,
        stdin_streamed=streamed,
    )
    return plan_job(job, host)


def _folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise Unenforceable((), f"{package} is not installed.", "Install palyra again: pip install palyra.")
    return Path(found.origin).resolve().parent
