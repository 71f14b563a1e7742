"""Containers for real: a podman that works here and the image of tools/podman.sh. `make test-podman` sets both up."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.host import HostFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.docker import LABEL, ContainerBackend
from palyra.sandbox.planner import needs_for
from palyra.sandbox.probe import probe
from tests.conformance.arena import OWNERS, Kept, Result

IMAGE = os.environ.get("PALYRA_TEST_IMAGE", "")
RUNTIME = os.environ.get("PALYRA_TEST_RUNTIME", "podman")
"""The same tests run with docker, where somebody has set that up."""
BACKEND = ContainerBackend(RUNTIME)


@functools.cache
def container_host() -> HostFacts:
    """Without bubblewrap, so that nothing but the container can serve tier C."""
    home = os.environ.get("HOME", "/nonexistent")
    with tempfile.TemporaryDirectory() as state:
        return probe(home=home, state_home=state, search_path=(), container_image=IMAGE, backend=RUNTIME)


@pytest.fixture(autouse=True)
def _available() -> None:
    if not IMAGE:
        pytest.skip("no image to run in: `make test-podman` installs podman and makes one")
    if container_host().container is None:
        pytest.skip("; ".join(b.detail for b in container_host().blockers if b.backend == RUNTIME))


@dataclass
class Place:
    folder: Path
    owner: int

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def secret(self) -> Path:
        return self.folder / "outside" / "secret"

    def job(self, *argv: str, **changes: Any) -> Job:
        net = changes.pop("net", NO_NETWORK)
        needs, wants = needs_for(Tier.C, net)
        sight = WorkspaceSight(
            path=str(self.workspace), owner_uid=self.owner, owner_gid=self.owner,
            protected=changes.pop("protected", ()),
        )  # fmt: skip
        facts: dict[str, Any] = {
            "program": f"/bin/{argv[0]}",
            "program_sha256": "",
            "argv": argv,
            "env": (("PATH", "/usr/bin:/bin"), ("HOME", "/home/agent"), ("TMPDIR", "/tmp")),
            "cwd": str(self.workspace),
            "workspace": sight,
            "read_roots": (),
            "limits": Limits(wall_ms=60_000),
            "net": net,
            "tier": Tier.C,
            "needs": needs,
            "wants": wants,
        }
        return Job(**(facts | changes))

    def plan(self, *argv: str, **changes: Any) -> ProcessPlan:
        return BACKEND.plan(self.job(*argv, **changes), container_host())

    async def start(self, *argv: str, source: Any = None, **changes: Any) -> Result:
        plan, output = self.plan(*argv, **changes), Kept()
        return Result(await ProcessExecutor(container_host()).run(plan, output, source), plan, output)

    def run(self, *argv: str, **changes: Any) -> Result:
        return asyncio.run(self.start(*argv, **changes))

    def sh(self, script: str, *arguments: str, **changes: Any) -> Result:
        return self.run("sh", "-c", script, "sh", *arguments, **changes)


@pytest.fixture(params=OWNERS, ids=lambda uid: f"owner{uid}")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="palyra-podman-")).resolve()
    made = Place(folder, request.param)
    try:
        for path in (folder, made.workspace, made.secret.parent):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        made.secret.write_text("the secret")
        os.chown(made.workspace, request.param, request.param)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def engine(*words: str) -> str:
    facts = container_host().container
    assert facts is not None
    done = subprocess.run([facts.path, *words], env=dict(facts.env), capture_output=True, text=True, timeout=60)
    return done.stdout


def containers() -> list[str]:
    return engine("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split()
