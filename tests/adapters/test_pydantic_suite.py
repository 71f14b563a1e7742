"""Pydantic AI's own suite for workspace backends, whole."""

from __future__ import annotations

import shutil

import pytest
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
