"""Pydantic AI's own suite for workspace backends, whole."""

from __future__ import annotations

import shutil

import anyio
import pytest
from pydantic_ai.workspaces import Workspace
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from palyra.adapters.pydantic_ai import PalyraWorkspace
from palyra.api import grant


class TestPalyraWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    def run(self, palyra, workspace):
        """The suite makes a FIFO, and a link whose text is `../out`: the operator grants both."""
        folder = workspace / "project"
        folder.mkdir()
        folder.chmod(0o777)
        allowed = grant(executables=("mkfifo",), read_roots=(str(workspace),))
        return palyra.run("agent:story", folder, grant=allowed)

    @pytest.fixture
    def backend(self, run):
        return PalyraWorkspace(run)

    @pytest.fixture
    def fresh_backend(self, run):
        return lambda: PalyraWorkspace(run)

    @pytest.fixture
    def destructive_backend(self, palyra, workspace):
        folder = workspace / "apart"
        folder.mkdir()
        folder.chmod(0o777)
        return lambda: PalyraWorkspace(palyra.run("agent:story", folder))

    @pytest.fixture
    def attach_backend(self, palyra):
        return lambda ref: PalyraWorkspace(palyra.run("agent:story", ref.id), ref=ref)

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend) -> None:
            shutil.rmtree(backend.ref.id)

        return destroy

    async def test_cancellation_stops_foreground_work(self, backend, has_real_posix_shell):
        """The suite asks with `kill -0` in the next command whether the number is gone. Here each command has process
        numbers of its own, the same ones, so that one would find itself: what is asked instead is whether it writes on.
        """
        workspace = Workspace(backend)

        async def beat() -> None:
            await backend.run(["sh", "-c", "while :; do echo x >> beat; sleep 0.02; done"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            with anyio.fail_after(30):
                while not await workspace.exists("beat"):
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        written = await workspace.read_text("beat")
        await anyio.sleep(0.5)
        assert await workspace.read_text("beat") == written
