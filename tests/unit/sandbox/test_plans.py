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
from palyra.model.face import NetFace
from palyra.model.host import BubblewrapFacts, CgroupFacts, ContainerFacts, HostFacts, Platform, SeatbeltFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, HostKind, HostPattern, NetGrant
from palyra.model.plan import Hole
from palyra.model.sights import WorkspaceSight
from palyra.sandbox import seatbelt, starter
from palyra.sandbox.planner import BACKENDS, plan_job
from palyra.sandbox.seccomp import MACHINES, assemble
from tests.unit.sandbox.jobs import make_host, make_job

FOLDER = Path(__file__).parents[2] / "vectors" / "plans"
REGENERATE = bool(os.environ.get("PALYRA_REGENERATE"))
OPEN = NetGrant(EgressMode.NONE)
HOSTS = (HostPattern(HostKind.EXACT, "registry.example"), HostPattern(HostKind.NETWORK, "10.0.0.5/32", 5432))
WS = "/home/alice/project"
CLOSED = WorkspaceSight(
    path=WS,
    owner_uid=1001,
    owner_gid=1001,
    protected=(f"{WS}/.git/config", f"{WS}/.git/hooks", f"{WS}/.github"),
    masked=(f"{WS}/.env",),
)
ROOT = make_host(uid=0, gid=0, home="/root", state_home="/var/lib/palyra", pid_max_per_namespace=True)
PROFILES = Path(seatbelt.__file__).parent / "profiles"
MAC = make_host(
    platform=Platform.MACOS, machine="arm64", kernel="24.0.0", uid=501, gid=20, shell="/bin/dash", bubblewrap=None,
    home="/Users/alice", state_home="/Users/alice/Library/palyra",
    seatbelt=SeatbeltFacts(
        path="/usr/bin/sandbox-exec",
        base=(PROFILES / "base.sbpl").read_text(),
        network=(PROFILES / "network.sbpl").read_text(),
    ),
)  # fmt: skip
WINDOWS = make_host(
    platform=Platform.WINDOWS, machine="AMD64", kernel="10.0.22631", uid=1000, gid=1000, shell="", bubblewrap=None,
    job_objects=True, system_root="C:\\Windows", home="C:\\Users\\alice", state_home="C:\\Users\\alice\\palyra",
)  # fmt: skip
ON_C = WorkspaceSight(path="C:\\project", owner_uid=1000, owner_gid=1000)


def with_container(runtime: str, host: HostFacts | None = None, **changes: object) -> HostFacts:
    facts: dict[str, object] = {
        "runtime": runtime, "path": f"/usr/bin/{runtime}", "version": "5.0",
        "image": "docker.io/library/debian@sha256:" + "ab" * 32, "memory": True, "pids": True,
        "env": (("HOME", "/home/alice"), ("PATH", "/usr/bin:/bin")),
    }  # fmt: skip
    return replace(host or make_host(), bubblewrap=None, container=ContainerFacts(**(facts | changes)))


CASES: dict[str, tuple[Job, HostFacts]] = {
    "tier-c-podman": (make_job(workspace=CLOSED, read_roots=("/opt/tools",)), with_container("podman", nproc=32768)),
    "tier-c-podman-rootless-network": (
        make_job(net=NetGrant(EgressMode.PREFLIGHT)), with_container("podman", rootless=True, selinux=True),
    ),
    "tier-c-docker": (make_job(), with_container("docker", volumes=("/data",), variables=("LANG", "PATH"))),
    "tier-c-docker-windows": (
        make_job(workspace=ON_C, cwd="C:\\project\\src"), with_container("docker", WINDOWS, path="C:\\docker.exe"),
    ),
    "tier-c-macos": (
        make_job(
            workspace=WorkspaceSight(path="/Users/alice/project", owner_uid=501, owner_gid=20), needs=frozenset(),
        ),
        MAC,
    ),
    "tier-c-macos-closed-network": (
        make_job(
            workspace=WorkspaceSight(
                path="/Users/alice/project", owner_uid=501, owner_gid=20,
                protected=("/Users/alice/project/.git/hooks",), masked=("/Users/alice/project/.env",),
            ),
            needs=frozenset(), net=OPEN, read_roots=("/opt/homebrew",),
        ),
        MAC,
    ),
    "tier-b-windows": (
        make_job(tier=Tier.B, net=OPEN, workspace=ON_C, program="C:\\Git\\git.exe", env=(("PATH", "C:\\Git"),)),
        WINDOWS,
    ),
    "tier-c-plain-user": (make_job(), make_host()),
    "tier-c-start-program": (make_job(), make_host(starter=True)),
    "tier-c-closed-paths": (make_job(workspace=CLOSED, cwd=f"{WS}/src"), make_host()),
    "tier-c-own-program-reading": (
        make_job(
            workspace=CLOSED, argv=("python3", "-I", "-S", "/etc/.palyra-inside/own.py"), program="/usr/bin/python3",
            own_files=(("/etc/.palyra-inside/own.py", b"print()"),), workspace_writable=False, stdin=b"{}",
        ),
        make_host(),
    ),
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
    "tier-c-granted-hosts": (
        make_job(
            net=NetGrant(EgressMode.STRICT, HOSTS),
            face=NetFace(
                names=(("registry.example", "198.18.0.16"),),
                local=("10.0.0.5/32", "198.18.0.0/15"),
                tcp=(("0.0.0.0", 80), ("0.0.0.0", 443), ("10.0.0.5", 5432)),
            ),
        ),
        make_host(bubblewrap=BubblewrapFacts(path="/bin/bwrap", version="0.9", disable_userns=True, listeners=True)),
    ),
    "tier-c-shared-network": (make_job(net=NetGrant(EgressMode.PREFLIGHT)), make_host()),
    "tier-c-root-owned-workspace": (make_job(workspace=WorkspaceSight(path="/srv/project")), ROOT),
    "tier-c-root-engine": (make_job(), ROOT),
    "tier-c-not-merged": (
        make_job(),
        make_host(usr_merged=False),
    ),
    "tier-b-plain-user": (make_job(tier=Tier.B, net=OPEN), make_host()),
    "tier-b-root-engine": (make_job(tier=Tier.B, net=OPEN), replace(ROOT, cgroup_kill="/sys/fs/cgroup/palyra")),
    "tier-b-start-program": (make_job(tier=Tier.B), make_host(starter=True, landlock_abi=7)),
    "tier-b-landlock": (make_job(tier=Tier.B, read_roots=("/opt/tools",)), make_host(landlock_abi=7)),
    "tier-b-landlock-shared-network": (make_job(tier=Tier.B, net=OPEN), make_host(landlock_abi=4, machine="aarch64")),
    "tier-b-landlock-root-owned-groups": (
        make_job(tier=Tier.B, workspace=WorkspaceSight(path="/srv/project"), allow_root=True),
        replace(ROOT, landlock_abi=7, cgroup_limits=CgroupFacts(version=1, memory="/cg/memory", pids="/cg/pids")),
    ),
    "tier-b-root-owned-workspace": (
        make_job(tier=Tier.B, net=OPEN, workspace=WorkspaceSight(path="/srv/project"), allow_root=True),
        replace(ROOT, cgroup_kill="/sys/fs/cgroup/palyra"),
    ),
    "tier-b-root-engine-as-nobody": (
        make_job(tier=Tier.B, workspace=WorkspaceSight(path="/srv/project")),
        replace(ROOT, landlock_abi=7),
    ),
}  # fmt: skip


def shown(job: Job, host: HostFacts) -> dict[str, object]:
    """The plan with the text of its small files, so that the file can be read without running anything."""
    plan = plan_job(job, host, tuple(backend for backend in BACKENDS if backend.guarantees(host)))
    filters = {assemble(machine): f"seccomp filter for {machine}" for machine in MACHINES}
    filters |= {assemble(m, own_network=True): f"seccomp filter for {m}, with NETLINK_ROUTE" for m in MACHINES}
    filters |= {assemble(m, own_program=True): f"seccomp filter for {m}, of a program of ours" for m in MACHINES}
    filters |= {assemble(m, unix=False): f"seccomp filter for {m}, without Unix sockets" for m in MACHINES}
    scoped = starter.assemble("x86_64", first=True, scoped=True)
    filters[scoped] = "start program, first process, which keeps to its own names of sockets"
    for first in (True, False):
        filters[starter.assemble("x86_64", first=first)] = f"start program, {'first process' if first else 'alone'}"
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
