"""OpenAI Agents SDK: a sandbox client whose sessions are runs of Palyra. Extra `palyra[openai-agents]`.

    with Palyra.open() as palyra:
        client = PalyraSandboxClient(palyra, grant=grant(interpreters=True))
        agent = SandboxAgent(name="…", instructions="…", default_manifest=Manifest(root="/path/to/project"))
        await Runner.run(agent, "…", run_config=RunConfig(sandbox=SandboxRunConfig(client=client)))

Without a root of its own a session works in a fresh folder, removed when it is deleted. Commands, files, listings and
snapshots go through `palyra.process.run`: what is in the workspace is read and unpacked inside the sandbox, never here.
A refusal is a result with exit code 126, so that the model reads why. Other users, ports and terminals are not offered.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import uuid
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession, SandboxSession, SandboxSessionState
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User

from palyra.adapters.running import Commands, check, shell_words
from palyra.api import OperatorGrant, Palyra
from palyra.launch.removing import remove_tree

DEFAULT_ROOT = str(Manifest().root)
SNAPSHOT = ".palyra-snapshot.tar"
PREFIX = "palyra-session-"


class PalyraSandboxSessionState(SandboxSessionState):
    type: Literal["palyra"] = "palyra"
    workspace_root_owned: bool = False


class PalyraSandboxClientOptions(BaseSandboxClientOptions):
    type: Literal["palyra"] = "palyra"


class PalyraSandboxSession(BaseSandboxSession):
    state: PalyraSandboxSessionState

    def __init__(self, *, state: PalyraSandboxSessionState, client: PalyraSandboxClient) -> None:
        self.state = state
        self._client = client
        self._live = False
        self._made: tuple[Commands, Commands] | None = None

    def _parts(self) -> tuple[Commands, Commands]:
        """For commands and for files: a file can be read while a command runs."""
        if self._made is None:
            run = self._client.palyra.run(
                self._client.principal, str(self.state.manifest.root), grant=self._client.grant
            )
            wait_s = self._client.wait_s
            self._made = (Commands(run, wait_s=wait_s), Commands(run.beside(), wait_s=wait_s))
        return self._made

    async def _prepare_backend_workspace(self) -> None:
        await asyncio.to_thread(Path(self.state.manifest.root).mkdir, parents=True, exist_ok=True)

    async def _after_start(self) -> None:
        self._live = True

    async def _after_stop(self) -> None:
        self._live = False

    async def running(self) -> bool:
        return self._live

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        if user is not None:
            raise ValueError("Palyra runs programs as the sandbox's own user.")
        if shell is True and len(command) == 1:
            return shell_words(str(command[0]))
        return super()._prepare_exec_command(*command, shell=["sh", "-c"] if shell is True else shell, user=None)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        ran = await self._parts()[0].arun([str(word) for word in command], timeout_s=timeout)
        if ran.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(stdout=ran.stdout.encode(), stderr=ran.stderr.encode(), exit_code=ran.exit_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        where = str(self.normalize_path(path))
        try:
            return io.BytesIO(await asyncio.to_thread(self._parts()[1].read, where))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except OSError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        where = self.normalize_path(path, for_write=True)
        content: Any = data.read()
        payload = content.encode() if isinstance(content, str) else bytes(content)
        try:
            await asyncio.to_thread(self._parts()[1].write, str(where), payload)
        except OSError as error:
            raise WorkspaceArchiveWriteError(path=where, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        files = self._parts()[1]
        left_out = [f"--exclude=./{path}" for path in self._persist_workspace_skip_relpaths()]
        try:
            words = ["tar", "-cf", SNAPSHOT, f"--exclude=./{SNAPSHOT}", *left_out, "."]
            check(await files.arun(words), SNAPSHOT)
            data = await asyncio.to_thread(files.read, SNAPSHOT)
            check(await files.arun(["rm", "-f", "--", SNAPSHOT]), SNAPSHOT)
        except OSError as error:
            raise WorkspaceArchiveReadError(path=Path(self.state.manifest.root), cause=error) from error
        return io.BytesIO(data)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacked inside the sandbox: an archive that climbs out climbs into nothing."""
        files = self._parts()[1]
        content: Any = data.read()
        try:
            await asyncio.to_thread(files.write, SNAPSHOT, bytes(content))
            check(await files.arun(["tar", "-xf", SNAPSHOT, "--no-same-owner"]), SNAPSHOT)
            check(await files.arun(["rm", "-f", "--", SNAPSHOT]), SNAPSHOT)
        except OSError as error:
            raise WorkspaceArchiveWriteError(path=Path(self.state.manifest.root), cause=error) from error


class PalyraSandboxClient(BaseSandboxClient[PalyraSandboxClientOptions | None]):
    backend_id = "palyra"
    supports_default_options = True

    def __init__(
        self,
        palyra: Palyra,
        *,
        principal: str = "agent:openai-agents",
        grant: OperatorGrant | None = None,
        wait_s: float = 0.0,
    ) -> None:
        self.palyra = palyra
        self.principal = principal
        self.grant = grant
        self.wait_s = wait_s

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: PalyraSandboxClientOptions | None = None,
    ) -> SandboxSession:
        asked = manifest if manifest is not None else Manifest()
        self._validate_manifest_for_create(asked)
        owned = str(asked.root) == DEFAULT_ROOT
        if owned:
            folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=PREFIX)
            asked = asked.model_copy(update={"root": folder}, deep=True)
        session_id = uuid.uuid4()
        state = PalyraSandboxSessionState(
            session_id=session_id,
            manifest=asked,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            workspace_root_owned=owned,
        )
        return self._wrap_session(PalyraSandboxSession(state=state, client=self))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, PalyraSandboxSession):
            raise TypeError("this is a session of another client")
        root = Path(str(inner.state.manifest.root))
        if inner.state.workspace_root_owned and _is_ours(root):
            await asyncio.to_thread(remove_tree, root)
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, PalyraSandboxSessionState):
            raise TypeError("this is a state of another client")
        return self._wrap_session(PalyraSandboxSession(state=state, client=self))

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, PalyraSandboxSessionState)


def _is_ours(root: Path) -> bool:
    """A state that was stored may say anything of what is to be deleted with it."""
    return root.parent == Path(tempfile.gettempdir()) and root.name.startswith(PREFIX)
