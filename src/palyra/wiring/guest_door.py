"""The engine's port for guests. The house behind it is built at the first guest: most calls never need one, and loading
wasmtime's library would cost every start of the command line."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.config.tool_call import WasmRuntimeConfig
from palyra.engine.ports import HostCall
from palyra.launch.process import ProcessExecutor
from palyra.model.host import HostFacts
from palyra.model.outcome import Execution
from palyra.model.wasm import WasmPlan

if TYPE_CHECKING:
    from palyra.wiring.guests import GuestHouse


class GuestDoor:
    def __init__(
        self, executor: ProcessExecutor, host: HostFacts, config: WasmRuntimeConfig, folder: Path, *, spare: int
    ) -> None:
        self._executor, self._host, self._config, self._folder, self._spare = executor, host, config, folder, spare
        self._house: GuestHouse | None = None
        self._building = asyncio.Lock()

    async def run(self, plan: WasmPlan, module: bytes, answer: HostCall) -> tuple[Execution, bytes | None]:
        house = self._house or await self._built()
        return await house.run(plan, module, answer)

    async def compile(self, module_sha256: str, module: bytes) -> None:
        """Compile it as a call would, in the limited child, and keep what came of it. Raises Rejected."""
        house = self._house or await self._built()
        await house.compile(module_sha256, module)

    async def _built(self) -> GuestHouse:
        async with self._building:
            if self._house is None:
                rooms = await asyncio.to_thread(import_module, "palyra.wiring.guests")
                self._house = rooms.GuestHouse(
                    self._executor, self._host, self._config, self._folder, spare=self._spare
                )
            assert self._house is not None
            return self._house

    async def close(self) -> None:
        async with self._building:
            if self._house is not None:
                await self._house.close()
