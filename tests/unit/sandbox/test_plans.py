"""Golden plans: job and facts in, the whole plan out, as files that a reviewer can read.

`PALYRA_REGENERATE=1 pytest tests/unit/sandbox/test_plans.py` writes them again; read the difference before it is
committed, because each changed word changes what an approval names.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.model.call import Tier
from palyra.model.host import HostFacts
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import Hole, Job, WorkspaceSight
from palyra.sandbox.planner import plan_job
from palyra.sandbox.seccomp import MACHINES, assemble
from tests.unit.sandbox.jobs import make_host, make_job

FOLDER = Path(__file__).parents[2] / "vectors" / "plans"
REGENERATE = bool(os.environ.get("PALYRA_REGENERATE"))
OPEN = NetGrant(EgressMode.NONE)
WS = "/home/alice/project"
CLOSED = WorkspaceSight(
    path=WS,
    owner_uid=1001,
    owner_gid=1001,
    protected=(f"{WS}/.git/config", f"{WS}/.git/hooks", f"{WS}/.github"),
    masked=(f"{WS}/.env",),
)
ROOT = make_host(uid=0, gid=0, home="/root", state_home="/var/lib/palyra", pid_max_per_namespace=True)

CASES: dict[str, tuple[Job, HostFacts]] = {
    "tier-c-plain-user": (make_job(), make_host()),
    "tier-c-closed-paths": (make_job(workspace=CLOSED, cwd=f"{WS}/src"), make_host()),
    "tier-c-below-tmp": (
        make_job(workspace=WorkspaceSight(path="/tmp/work/ws", owner_uid=1001), read_roots=("/var/tmp/tools",)),
        make_host(),
    ),
    "tier-c-toolchain-in-home": (
        make_job(
            program="/home/alice/.cargo/bin/cargo", argv=("cargo", "build"), read_roots=("/home/alice/.rustup",),
            limits=Limits(processes=64, scratch_bytes=64 << 20), stdin=b"input",
        ),
        make_host(machine="aarch64"),
    ),
    "tier-c-shared-network": (make_job(net=NetGrant(EgressMode.PREFLIGHT)), make_host()),
    "tier-c-root-owned-workspace": (make_job(workspace=WorkspaceSight(path="/srv/project")), ROOT),
    "tier-c-root-engine": (make_job(), ROOT),
    "tier-c-not-merged": (
        make_job(),
        make_host(usr_merged=False, system_folders=("/usr", "/bin", "/sbin", "/lib", "/lib64")),
    ),
    "tier-b-plain-user": (make_job(tier=Tier.B, net=OPEN), make_host()),
    "tier-b-root-engine": (make_job(tier=Tier.B, net=OPEN), replace(ROOT, cgroup_kill="/sys/fs/cgroup/palyra")),
    "tier-b-root-owned-workspace": (
        make_job(tier=Tier.B, net=OPEN, workspace=WorkspaceSight(path="/srv/project")),
        replace(ROOT, cgroup_kill="/sys/fs/cgroup/palyra"),
    ),
}  # fmt: skip


def shown(job: Job, host: HostFacts) -> dict[str, object]:
    """The plan with the text of its small files, so that the file can be read without running anything."""
    plan = plan_job(job, host)
    filters = {assemble(machine): f"seccomp filter for {machine}" for machine in MACHINES}
    texts = [filters.get(data) or data.decode() for data in plan.data]
    assert all(not isinstance(w, Hole) or w.index < len(texts) for w in plan.launcher)
    return {"plan": plan.as_json(), "data": texts}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_plan_is_the_one_on_file(name: str) -> None:
    file = FOLDER / f"{name}.json"
    found = shown(*CASES[name])
    if REGENERATE:
        file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert json.loads(file.read_text()) == found


def test_no_file_is_without_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)
