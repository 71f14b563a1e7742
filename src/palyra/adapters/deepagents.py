"""LangChain deepagents: a run as a `SandboxBackendProtocol`. Extra `palyra[deepagents]`.

    with Palyra.open() as palyra:
        run = palyra.run("agent:writer", "project", grant=grant(interpreters=True))
        agent = create_deep_agent(model=…, backend=PalyraSandbox(run))

`execute` is the agent's own line, decided as such; listing, reading, searching and editing are scripts of deepagents'
`BaseSandbox`, handed to a shell inside over its stdin: they are the framework's code and not the agent's words, and a
sandbox is the wall for both. A refusal is output with exit code 126, so that the model reads why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from palyra.adapters.running import Commands, Ran
from palyra.api import SyncRun

FRAMEWORK = 'eval "$(cat)"'
"""Reads the script that comes on stdin, whole, and leaves its stdin at the end."""


_FRAMEWORKS: ContextVar[bool] = ContextVar("palyra_deepagents_script", default=False)


@contextmanager
def _own_script() -> Iterator[None]:
    token = _FRAMEWORKS.set(True)
    try:
        yield
    finally:
        _FRAMEWORKS.reset(token)


class PalyraSandbox(BaseSandbox):
    """`wait_s`: how long a command waits for a person, where policy asks for one."""

    def __init__(self, run: SyncRun, *, wait_s: float = 0.0) -> None:
        self._commands = Commands(run, wait_s=wait_s)
        self._id = f"palyra-{run.run_id}"

    @property
    def id(self) -> str:
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        limit = float(timeout) if timeout else None
        if _FRAMEWORKS.get():
            return _response(self._commands.run(["sh", "-c", FRAMEWORK], stdin=command, timeout_s=limit))
        return _response(self._commands.shell(command, timeout_s=limit))

    # ── what BaseSandbox does by scripts of its own ──

    def ls(self, path: str) -> LsResult:
        with _own_script():
            return super().ls(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        with _own_script():
            return super().read(file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        with _own_script():
            return super().write(file_path, content)

    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002  # the protocol's own
    ) -> EditResult:
        with _own_script():
            return super().edit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        with _own_script():
            return super().delete(file_path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        with _own_script():
            return super().grep(pattern, path, glob, max_count=max_count)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        with _own_script():
            return super().glob(pattern, path)

    # In a thread, where the flag goes along: asyncio.to_thread copies the context.

    async def als(self, path: str) -> LsResult:
        return await asyncio.to_thread(self.ls, path)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await asyncio.to_thread(self.read, file_path, offset, limit)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await asyncio.to_thread(self.write, file_path, content)

    async def aedit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002  # the protocol's own
    ) -> EditResult:
        return await asyncio.to_thread(self.edit, file_path, old_string, new_string, replace_all)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        return await asyncio.to_thread(self.grep, pattern, path, glob, max_count=max_count)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        return await asyncio.to_thread(self.glob, pattern, path)

    # ── files as bytes ──

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _upload(self, path: str, data: bytes) -> str | None:
        try:
            self._commands.write(path, data)
        except OSError as error:
            return _error(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path=path, content=self._commands.read(path))
        except OSError as error:
            return FileDownloadResponse(path=path, error=_error(error))


def _response(ran: Ran) -> ExecuteResponse:
    return ExecuteResponse(output=ran.stdout + ran.stderr, exit_code=ran.exit_code, truncated=ran.truncated)


def _error(error: OSError) -> str:
    names = ((FileNotFoundError, "file_not_found"), (IsADirectoryError, "is_directory"))
    found = next((name for kind, name in names if isinstance(error, kind)), None)
    return found or ("permission_denied" if isinstance(error, PermissionError) else str(error))
