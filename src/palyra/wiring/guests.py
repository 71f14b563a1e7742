"""The guests' house: plans for the worker and for the compiler's child, made like any tier C plan, and who owns both.

The jail sees system folders, wasmtime's folder and the folder of our own programs, all read-only; it can write nowhere
but a scratch of its own, and has no network and no secrets. Nothing of it is made before the first guest.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

from palyra import inside
from palyra.canon import sha256_hex
from palyra.config.tool_call import WasmRuntimeConfig
from palyra.errors import Unenforceable
from palyra.inside.wasm import engine as wasm_engine
from palyra.launch.artefacts import ArtefactCache
from palyra.launch.compiler import Compiler
from palyra.launch.guest_threads import GuestThreads
from palyra.launch.guest_worker import HostCall
from palyra.launch.guests import Artefact, Guests
from palyra.launch.process import ProcessExecutor
from palyra.launch.shares import Shares
from palyra.model.call import Tier
from palyra.model.host import HostFacts
from palyra.model.job import Job
from palyra.model.limits import GIB, MIB, Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.outcome import Execution
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.model.wasm import WasmPlan
from palyra.sandbox.planner import needs_for, plan_job
from palyra.sandbox.probe_code import REFUSED, REMEDY, may_make_code

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
    wall_ms=180_000,  # what bounds it is its CPU time; a busy machine takes longer over a whole Python
    cpu_ms=40_000,
    memory_bytes=1 * GIB,
    processes=64,
    output_bytes=256 * MIB,
    file_bytes=256 * MIB,  # wasmtime keeps images of initial memory in anonymous files
    scratch_bytes=1 * MIB,
    open_files=64,
)


def worker_plan(host: HostFacts, *, layer: str = "direct") -> ProcessPlan:
    """`layer`: what runs core modules in it, `direct` or `wrapper`."""
    return _plan(host, program="worker.py", arguments=(layer,), limits=_WORKER)


def compiler_plan(host: HostFacts) -> ProcessPlan:
    return _plan(host, program="compiling.py", limits=_COMPILER, streamed=True)


def assembler_plan(host: HostFacts) -> ProcessPlan:
    return _plan(host, program="assembling.py", limits=_COMPILER, streamed=True)


def artefact_meaning(host: HostFacts) -> str:
    """What a compiled module's bytes hang on, beside the module."""
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
    *,
    program: str,
    arguments: tuple[str, ...] = (),
    limits: Limits,
    streamed: bool = False,
) -> ProcessPlan:
    net = NetGrant(EgressMode.STRICT, ())
    needs, wants = needs_for(Tier.C, net)
    own = Path(str(inside.__file__)).resolve().parent
    found = own.stat()
    wasmtime = _folder_of("wasmtime")
    file = own / "wasm" / program
    job = Job(
        program=PYTHON,
        program_sha256=sha256_hex(file.read_bytes()),
        argv=("python3", "-I", "-S", str(file), str(wasmtime.parent), *arguments),
        env=(("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")),
        cwd=str(own),
        workspace=WorkspaceSight(path=str(own), owner_uid=found.st_uid, owner_gid=found.st_gid),
        read_roots=(str(wasmtime),),
        limits=limits,
        net=net,
        tier=Tier.C,
        needs=needs,
        wants=wants,
        stdin_streamed=streamed,
        workspace_writable=False,
        own_program=True,
    )
    return plan_job(job, host)


def _folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise Unenforceable(
            (), f"{package} is not installed.", "Reinstall it, in a checkout of Palyra: pip install --force-reinstall ."
        )
    return Path(found.origin).resolve().parent


class GuestHouse:
    """Runs guests: jailed ones by workers of their own, those of trusted publishers on a thread of this process."""

    def __init__(
        self, executor: ProcessExecutor, host: HostFacts, config: WasmRuntimeConfig, folder: Path, *, spare: int = 1
    ) -> None:
        """`spare`: workers that are kept ready for a module that is not loaded yet."""
        try:
            wasm_engine.check_version()
        except wasm_engine.WrongRuntime as error:
            raise Unenforceable((), f"{error}.", f"pip install wasmtime=={wasm_engine.WASMTIME}") from None
        if not may_make_code():
            raise Unenforceable((), REFUSED, REMEDY)
        self._executor, self._host, self._config, self._folder = executor, host, config, folder
        self._spare = spare
        self._shares = Shares(config.max_instances_per_skill)
        self._compiler: Compiler | None = None
        self._jailed: Guests | None = None
        self._here: GuestThreads | None = None

    async def run(self, plan: WasmPlan, module: bytes, answer: HostCall) -> tuple[Execution, bytes | None]:
        async with self._shares.of(plan.skill_id):
            return await self._house(plan).run(plan, module, answer)

    def _house(self, plan: WasmPlan) -> Guests | GuestThreads:
        if plan.in_process:
            if self._here is None:
                self._here = GuestThreads(self._compiled(), at_once=self._config.max_instances)
            return self._here
        if self._jailed is None:
            worker = worker_plan(self._host)
            begin = partial(self._executor.begin, worker)
            self._jailed = Guests(begin, self._compiled(), at_once=self._config.max_instances, spare=self._spare)
        return self._jailed

    async def compile(self, module_sha256: str, module: bytes) -> None:
        await self._compiled()(module_sha256, module)

    async def close(self) -> None:
        for guests in (self._jailed, self._here):
            if guests is not None:
                await guests.close()

    def _compiled(self) -> Artefact:
        if self._compiler is None:
            cache = ArtefactCache(self._folder, meaning=artefact_meaning(self._host))
            self._compiler = Compiler(self._executor, compiler_plan(self._host), cache)
        return self._compiler.artefact
