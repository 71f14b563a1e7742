"""Pydantic AI: a run's workspace as a `WorkspaceBackend`. Extra `palyra[pydantic-ai]`.

    with Palyra.open() as palyra:
        run = palyra.run("agent:writer", "project", grant=grant(interpreters=True))
        result = agent.run_sync("…", workspace=Workspace(PalyraWorkspace(run)))

Commands run in the sandbox; files are reached through them, so both see one file system and policy sees both. Rules of
theirs that are kept: a non-zero exit is a result, a program that is not there is 127, the environment is never torn
down here. A refusal is exit code 126 with the reason on stderr; `on_refusal="raise"` makes it an error instead.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import posixpath
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceCommand,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from palyra.adapters.running import PARENT, Commands, Ran, check, decoded, shell_words
from palyra.api import SyncRun

PROVIDER = "palyra"
LOOK_EVERY_S = 0.5
_APART = 'n={count}; while [ "$n" -gt 0 ]; do (:); n=$((n-1)); done; '
"""Each command has process ids of its own, counted from the same number: a script that kept one would mean another
process by it. A few are used up first, so that neighbours do not repeat."""


class PalyraWorkspace:
    """One run, one workspace. `wait_s`: how long a command waits for a person, where policy asks for one."""

    def __init__(
        self,
        run: SyncRun,
        *,
        ref: WorkspaceRef | None = None,
        wait_s: float = 0.0,
        on_refusal: Literal["result", "raise"] = "result",
    ) -> None:
        self._commands = Commands(run, wait_s=wait_s)
        self._files = Commands(run.beside(), wait_s=wait_s)  # files can be looked at while a command runs
        self._given = ref
        self._ref: WorkspaceRef | None = ref
        self._raises = on_refusal == "raise"
        self._count = itertools.count()

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def working_dir(self) -> str:
        folder = self._commands.workspace
        if self._given is not None and self._given != WorkspaceRef(provider=PROVIDER, id=folder):
            raise WorkspaceUnavailableError(f"This run works in {folder}, not in {self._given.id}.")
        self._check_there()
        self._ref = WorkspaceRef(provider=PROVIDER, id=folder)
        return folder

    def _check_there(self) -> None:
        """A folder that is bound into a sandbox stays there for what runs inside, also when it is removed outside."""
        if not os.path.isdir(self._commands.workspace):
            raise WorkspaceUnavailableError(f"The workspace {self._commands.workspace} is gone.")

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the protocol's own
    ) -> CommandResult:
        if isinstance(command, str) is not shell:
            raise TypeError("a string is for shell=True, a sequence of words for shell=False")
        await self.working_dir()
        work = asyncio.ensure_future(self._commands.arun(self._words(command), env=env, timeout_s=timeout))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=LOOK_EVERY_S)
                self._check_there()
            return self._result(work.result())
        finally:
            work.cancel()

    def _words(self, command: WorkspaceCommand) -> list[str]:
        apart = _APART.format(count=next(self._count) % 16)
        if isinstance(command, str):
            return shell_words(apart + command)
        words = list(command)
        if len(words) >= 3 and words[:2] == ["sh", "-c"]:
            words[2] = apart + words[2]
        return words

    def _result(self, ran: Ran) -> CommandResult:
        if ran.timed_out:
            raise WorkspaceTimeoutError("The command took too long.", stdout=ran.stdout, stderr=ran.stderr)
        if ran.truncated:
            limit = int(ran.outcome.usage.output_bytes or 0)
            raise WorkspaceOutputLimitError(
                "The command wrote too much.", limit=limit, stdout=ran.stdout, stderr=ran.stderr
            )
        if ran.refused and self._raises:
            raise WorkspaceError(ran.stderr)
        return CommandResult(exit_code=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr)

    # ── files ──

    async def _script(self, script: str, path: str) -> Ran:
        await self.working_dir()
        return await asyncio.to_thread(self._files.script, script, path)

    async def read_bytes(self, path: str) -> bytes:
        await self.working_dir()
        return await asyncio.to_thread(self._files.read, path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        await self.working_dir()
        await asyncio.to_thread(self._files.write, path, data)

    async def stat(self, path: str) -> FileEntry:
        ran = await self._script(_STAT, path)
        check(ran, path)
        kind, _, size = ran.stdout.strip().partition(" ")
        return _entry(path, is_dir=kind == "d", size=int(size) if kind == "f" else None)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        names = decoded(await self._script(_LIST, path), path).decode("utf-8", "surrogateescape").split("\0")
        found = sorted((name[1:], name[0] == "d") for name in names if name)
        return tuple(_entry(posixpath.join(path, name), is_dir=is_dir, size=None) for name, is_dir in found)

    async def make_dir(self, path: str) -> None:
        check(await self._script(_MAKE, path), path)

    async def remove(self, path: str) -> None:
        root = await self.working_dir()
        if root == path or root.startswith(path.rstrip("/") + "/"):
            raise ValueError("the working directory and what is above it stay")
        target = posixpath.join(await self.realpath(posixpath.dirname(path)), posixpath.basename(path))
        if root == target or root.startswith(target.rstrip("/") + "/"):
            raise ValueError("the working directory and what is above it stay")
        check(await self._script(_REMOVE, path), path)

    async def exists(self, path: str) -> bool:
        ran = await self._script('test -e "$1"', path)
        if ran.exit_code > 1:
            check(ran, path)
        return ran.exit_code == 0

    async def realpath(self, path: str) -> str:
        found = decoded(await self._script('realpath -mz -- "$1" | base64', path), path)
        return found.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _entry(path: str, *, is_dir: bool, size: int | None) -> FileEntry:
    return FileEntry(name=posixpath.basename(posixpath.normpath(path)), path=path, is_dir=is_dir, size=size)


_STAT = (
    'if test -d "$1"; then echo d; elif test -f "$1"; then echo "f $(stat -L -c %s -- "$1")"; '
    'elif test -e "$1"; then echo o; else exit 102; fi'
)
_LIST = (
    'test -d "$1" || { test -e "$1" && exit 120; exit 102; }; test -r "$1" || exit 113; cd -- "$1" || exit 113; '
    'for f in * .[!.]* ..?*; do if test -e "$f" || test -L "$f"; then '
    'if test -d "$f"; then printf "d%s\\0" "$f"; else printf "f%s\\0" "$f"; fi; fi; done | base64'
)
_MAKE = f'test -e "$1" && ! test -d "$1" && exit 117; {PARENT}mkdir -p -- "$1" || exit 113'
_REMOVE = 'test -e "$1" || test -L "$1" || exit 102; rm -rf -- "$1"'
