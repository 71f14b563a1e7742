"""deploy/Containerfile, built and run for real: a daemon with sandboxes of its own inside a container."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.deploy.conftest import DEPLOY
from tests.keeping import wait_for

IMAGE = os.environ.get("PALYRA_TEST_DEPLOY_IMAGE", "")
LOWERED = ("--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined")
"""As the file's own comment says: bubblewrap's walls instead of the container's."""
BOUNDS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
Inside = Callable[..., subprocess.CompletedProcess[bytes]]


def podman(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["podman", *words], capture_output=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    if not IMAGE:
        pytest.skip("make test-deploy builds the image")
    name = f"palyra-deploy-{uuid.uuid4().hex[:12]}"
    volume = f"{name}:/home/palyra/state"
    begun = podman(
        "run", "--detach", "--init", "--name", name, "--network=none", *BOUNDS, *LOWERED, "-v", volume, IMAGE
    )
    try:
        assert begun.returncode == 0, begun.stderr
        wait_for(lambda: b"listens on" in podman("logs", name).stderr)
        yield name
    finally:
        podman("rm", "--force", "--time", "5", name)
        podman("volume", "rm", name)


def inside(container: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    return podman("exec", container, "palyra", *words)


def test_the_daemon_is_ready_and_tier_c_works_inside(container):
    doctor = json.loads(inside(container, "--json", "doctor").stdout)
    assert {item["check"]: item["status"] for item in doctor["items"]}["tier C bubblewrap"] == "ok"


@pytest.mark.parametrize("tier", ["b", "c"])
def test_calls_run_in_sandboxes_of_the_containers_own(container, tier):
    done = inside(container, "--json", "run", "--tier", tier, "--", "ls", "/workspace")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["status"]) == (0, "completed"), outcome
    assert outcome["attestation"]["executor"].startswith(f"sandbox_tier_{tier}")
    assert outcome["call_id"].encode() in podman("logs", container).stderr, "the daemon made it"


def test_it_is_no_root_and_holds_its_state_in_the_volume_alone(container):
    assert podman("exec", container, "id", "-u").stdout == b"1000\n"
    shown = podman("exec", container, "stat", "-c", "%U %a", "/home/palyra/state").stdout
    assert shown == b"palyra 700\n"
    assert podman("exec", container, "touch", "/opt/palyra/bin/was-here").returncode != 0


def test_it_stops_in_order_and_what_it_kept_is_there_again(container):
    entries = json.loads(inside(container, "--json", "journal", "verify").stdout)["entries"]
    assert podman("stop", "--time", "30", container).returncode == 0
    assert podman("inspect", container, "--format", "{{.State.ExitCode}}").stdout == b"0\n"
    assert podman("start", container).returncode == 0
    wait_for(lambda: inside(container, "--json", "journal", "verify").returncode == 0)
    assert json.loads(inside(container, "--json", "journal", "verify").stdout)["entries"] > entries


def test_everything_that_is_installed_is_pinned_by_hash():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    installs = [part for line in text.splitlines() for part in line.split("&&") if "pip install" in part]
    assert len(installs) == 3
    assert [one for one in installs if "--require-hashes" not in one and "--no-index" not in one] == []
