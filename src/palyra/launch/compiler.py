"""Compiles a module once, in a sandboxed child with limits, and keeps the artefact.

The module was scanned before (sandbox/wasm_scan); what still takes too long or too much is ended by the child's limits
and costs nobody else anything. `plan` is the compiler's child as the planner made it; the module goes in on stdin.
"""

from __future__ import annotations

import asyncio

from palyra.errors import Reason, Rejected
from palyra.inside.wasm.compiling import REFUSED
from palyra.launch.artefacts import ArtefactCache
from palyra.launch.collecting import Collected, Given
from palyra.launch.executor import Executor
from palyra.model.outcome import Execution, Status
from palyra.model.plan import ProcessPlan


class Compiler:
    """One module is compiled by one child at a time, however many calls wait for it."""

    def __init__(self, executor: Executor, plan: ProcessPlan, cache: ArtefactCache) -> None:
        self._executor = executor
        self._plan = plan
        self._cache = cache
        self._locks: dict[str, asyncio.Lock] = {}

    async def artefact(self, module_sha256: str, wasm: bytes) -> bytes:
        """Raises Rejected(BAD_ARGUMENTS) for a module that cannot be compiled within the limits."""
        found = await asyncio.to_thread(self._cache.read, module_sha256)
        if found is not None:
            return found
        lock = self._locks.setdefault(module_sha256, asyncio.Lock())
        try:
            async with lock:
                found = await asyncio.to_thread(self._cache.read, module_sha256)
                return found if found is not None else await self._compile(module_sha256, wasm)
        finally:
            if not lock.locked():
                self._locks.pop(module_sha256, None)

    async def _compile(self, module_sha256: str, wasm: bytes) -> bytes:
        output = Collected()
        execution = await self._executor.run(self._plan, output, Given(wasm))
        if execution.status is not Status.COMPLETED or execution.exit_code != 0:
            raise _refusal(execution, bytes(output.stderr))
        artefact = bytes(output.stdout)
        await asyncio.to_thread(self._cache.write, module_sha256, artefact)
        return artefact


def _refusal(execution: Execution, words: bytes) -> Rejected:
    lines = [line for line in words.decode("utf-8", "replace").splitlines() if line.strip() and "BACKTRACE" not in line]
    said = lines[-1][:500] if lines else ""
    if execution.exit_code == REFUSED:
        return Rejected(Reason.BAD_ARGUMENTS, said, "docs/spec/wasm.md has the two surfaces a guest may be built to.")
    if execution.status is Status.FAILED:
        detail = execution.message or "The compiler's sandbox could not be started."
        return Rejected(Reason.SPAWN_FAILED, detail, "palyra doctor names what is missing.")
    return Rejected(
        Reason.BAD_ARGUMENTS,
        f"The module could not be compiled within its limits: {execution.message or said or execution.status.value}",
        "Build it smaller; functions of many thousand instructions or locals take a compiler too long.",
    )
