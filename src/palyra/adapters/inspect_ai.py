"""Inspect AI: a `SandboxEnvironment` called `palyra`. Extra `palyra[inspect]`.

    Task(…, sandbox=("palyra", PalyraSandboxConfig(home="…")))          # or sandbox="palyra" for the default home

Each sample works in a folder of its own, removed at its end, in a run of its own; every `exec` is a decided, confined
and journaled call. A refusal is a failed result with exit code 126 and the reason on stderr. Other users than the
sandbox's own are not to be had.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any, Literal, cast, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    sandboxenv,
)
from pydantic import BaseModel

from palyra.adapters.running import Commands, without_shell
from palyra.api import Palyra, SyncRun, grant
from palyra.launch.removing import remove_tree


class PalyraSandboxConfig(BaseModel, frozen=True):
    home: str | None = None
    principal: str = "agent:inspect"
    interpreters: bool = True
    """Evaluations run code: granted for the samples' runs, unless this says no."""
    executables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    wait_s: float = 0.0


@sandboxenv(name="palyra")
class PalyraSandboxEnvironment(SandboxEnvironment):
    def __init__(self, palyra: Palyra, run: SyncRun, *, wait_s: float = 0.0) -> None:
        super().__init__()
        self.palyra = palyra
        self.run = run
        self._commands = Commands(run, wait_s=wait_s)
        self._files = Commands(run.beside(), wait_s=wait_s)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        settings = config if isinstance(config, PalyraSandboxConfig) else PalyraSandboxConfig()
        return {"default": await asyncio.to_thread(_begin, settings)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,  # noqa: FBT001  # their signature
    ) -> None:
        for environment in environments.values():
            await asyncio.to_thread(_end, cast("PalyraSandboxEnvironment", environment))

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return PalyraSandboxConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109  # their signature
        timeout_retry: bool = True,  # noqa: FBT001, FBT002
        concurrency: bool = True,  # noqa: FBT001, FBT002
    ) -> ExecResult[str]:
        if user is not None:
            raise PermissionError(f"Palyra runs programs as the sandbox's own user, not as {user!r}.")
        stdin = input.decode() if isinstance(input, bytes) else input
        ran = await self._commands.arun(without_shell(cmd), cwd=cwd, env=env, stdin=stdin, timeout_s=timeout)
        if ran.timed_out:
            raise TimeoutError(ran.stderr)
        if ran.truncated:
            raise OutputLimitExceededError("the run's output quota", ran.stdout)
        return ExecResult(success=ran.exit_code == 0, returncode=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await asyncio.to_thread(self._files.write, file, data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...  # noqa: FBT002

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:  # noqa: FBT001, FBT002
        data = await asyncio.to_thread(self._files.read, file)
        return data.decode() if text else data


def _begin(settings: PalyraSandboxConfig) -> PalyraSandboxEnvironment:
    palyra = Palyra.open(settings.home)
    folder = tempfile.mkdtemp(prefix="palyra-sample-")
    allowed = grant(interpreters=settings.interpreters, executables=settings.executables, hosts=settings.hosts)
    run = palyra.run(settings.principal, folder, grant=allowed)
    return PalyraSandboxEnvironment(palyra, run, wait_s=settings.wait_s)


def _end(environment: PalyraSandboxEnvironment) -> None:
    environment.run.end()
    environment.palyra.close()
    remove_tree(environment.run.workspace)
