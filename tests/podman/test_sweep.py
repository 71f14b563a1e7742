"""A container outlives the client that started it: what a dead engine left is found by its label and removed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from palyra.launch import _os
from palyra.launch.container import Engine, sweep
from palyra.sandbox.docker import LABEL
from tests.podman.conftest import IMAGE, RUNTIME, Place, container_host, containers, engine
from tests.promises import promise

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def asked() -> Engine:
    facts = container_host().container
    assert facts is not None
    return Engine(facts.path, facts.env, RUNTIME)


def left_by(owner: str, name: str) -> None:
    facts = container_host().container
    assert facts is not None
    bound = ["--ulimit", f"nproc={facts.nproc}"] if facts.nproc else []
    engine("run", "--detach", "--pull", "never", "--network", "none", "--entrypoint", "", "--name", name,
           "--ulimit", "nofile=64:64", *bound, "--label", f"{LABEL}={owner}", facts.image, "sleep", "60")  # fmt: skip


def test_containers_of_dead_engines_go_and_others_stay() -> None:
    boot, namespace = _os.own_identity().split(".")[:2]
    left_by(_os.own_identity(), "palyra-test-mine")
    left_by(f"{boot}.{namespace}.4194300.1", "palyra-test-dead")
    left_by(f"{boot}.1.4194300.1", "palyra-test-elsewhere")
    left_by("another-boot.1.1.1", "palyra-test-old")
    try:
        assert len(containers()) == 4
        assert sorted(asyncio.run(sweep(asked()))) == ["palyra-test-dead", "palyra-test-old"]
        assert len(containers()) == 2
    finally:
        for name in ("palyra-test-mine", "palyra-test-dead", "palyra-test-elsewhere", "palyra-test-old"):
            engine("rm", "--force", name)


@promise("tree-kill.container")
def test_what_a_killed_engine_left_running_is_ended_by_the_next(place: Place) -> None:
    program = """
        import asyncio, json, os, sys
        from pathlib import Path
        sys.path[:0] = json.loads(sys.argv[1])
        from tests.podman.conftest import Place
        place = Place(Path(sys.argv[2]), int(sys.argv[3]))
        async def go():
            task = asyncio.create_task(place.start("sh", "-c", "while :; do echo . >> alive; sleep 0.05; done"))
            while not (place.workspace / "alive").exists():
                await asyncio.sleep(0.02)
            os.kill(os.getpid(), 9)
        asyncio.run(go())
    """
    arguments = [json.dumps([str(ROOT / "src"), str(ROOT)]), str(place.folder), str(place.owner)]
    argv = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    facts = container_host().container
    assert facts is not None
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(facts.env) | {"PALYRA_TEST_IMAGE": IMAGE, "PALYRA_TEST_RUNTIME": RUNTIME},
    )
    assert done.returncode == -9, done.stderr
    assert len(containers()) == 1
    assert place.run("true").execution.exit_code == 0
    assert containers() == []
    size = (place.workspace / "alive").stat().st_size
    time.sleep(0.3)
    assert (place.workspace / "alive").stat().st_size == size
