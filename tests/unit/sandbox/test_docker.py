from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from palyra.errors import Unenforceable
from palyra.model.host import ContainerFacts, Guarantee, HostFacts, Platform
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import Hole, ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.docker import FILTER, NAME, OWNER, ContainerBackend
from palyra.sandbox.planner import plan_job
from palyra.sandbox.seccomp_oci import profile
from tests.promises import promise
from tests.unit.sandbox.jobs import make_host, make_job

IMAGE = "docker.io/library/debian@sha256:" + "ab" * 32
WS = "/home/alice/project"
ALL = frozenset(Guarantee) - {Guarantee.HOST_ALLOWLIST}


def facts(runtime: str = "podman", **changes: Any) -> ContainerFacts:
    values: dict[str, Any] = {
        "runtime": runtime, "path": f"/usr/bin/{runtime}", "version": "5.0", "image": IMAGE,
        "env": (("HOME", "/home/alice"), ("PATH", "/usr/bin")), "memory": True, "pids": True,
    }  # fmt: skip
    return ContainerFacts(**(values | changes))


def host_with(container: ContainerFacts | None, **changes: Any) -> HostFacts:
    return make_host(bubblewrap=None, container=container, **changes)


def plan(container: ContainerFacts | None = None, **changes: Any) -> ProcessPlan:
    container = container or facts()
    return ContainerBackend(container.runtime).plan(make_job(**changes), host_with(container))


def words(made: ProcessPlan) -> list[str]:
    return [f"{w.before}{{{w.index}}}" if isinstance(w, Hole) else w for w in made.launcher]


def values_of(made: ProcessPlan, option: str) -> list[str]:
    said = words(made)
    return [said[at + 1] for at, word in enumerate(said) if word == option]


def test_nothing_is_claimed_without_a_container_that_was_seen() -> None:
    assert ContainerBackend("podman").guarantees(host_with(None)) == frozenset()
    assert ContainerBackend("docker").guarantees(host_with(facts("podman"))) == frozenset()


def test_limits_are_claimed_only_where_they_were_read_back() -> None:
    backend = ContainerBackend("podman")
    assert backend.guarantees(host_with(facts())) == ALL
    less = backend.guarantees(host_with(facts(memory=False, pids=False)))
    assert less == ALL - {Guarantee.MEMORY_LIMIT_TREE, Guarantee.PROCESS_LIMIT}


def test_it_comes_after_bubblewrap_and_serves_where_that_cannot() -> None:
    both = make_host(container=facts())
    assert plan_job(make_job(), both).backend == "bubblewrap"
    assert plan_job(make_job(), replace(both, bubblewrap=None)).backend == "podman"
    assert plan_job(make_job(), host_with(facts("docker"))).executor == "sandbox_tier_c_docker"


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_the_walls_are_all_there(runtime: str) -> None:
    said = words(plan(facts(runtime)))
    for wall in ("--read-only", "--no-healthcheck", "--interactive"):
        assert wall in said
    pairs = set(itertools.pairwise(said))
    assert {
        ("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--pull", "never"),
        ("--security-opt", "seccomp={0}"), ("--entrypoint", ""), ("--user", "1001:1001"), ("--ipc", "private"),
        ("--log-driver", "none"), ("--workdir", WS),
    } <= pairs  # fmt: skip
    assert not {"--privileged", "--rm", "--init", "--detach", "--tty", "--volume", "-v"} & set(said)
    assert said[-1] == IMAGE


def test_the_name_the_owner_and_the_filter_are_filled_in_at_the_start() -> None:
    made = plan()
    holes = [word for word in made.launcher if isinstance(word, Hole)]
    assert holes == [NAME, OWNER, FILTER]
    assert made.data == (profile(),)


def test_podman_is_told_what_docker_does_not_know() -> None:
    only = {"--unsetenv-all", "--read-only-tmpfs=false", "--image-volume", "--no-hosts", "--umask", "--timeout"}
    assert only <= set(words(plan(facts("podman"))))
    assert not only & set(words(plan(facts("docker"))))


def test_what_docker_cannot_ignore_of_an_image_is_covered() -> None:
    made = plan(facts("docker", volumes=("/data",), variables=("FROM_IMAGE", "PATH")), env=(("PATH", "/bin"),))
    assert values_of(made, "--tmpfs")[1:] == ["/data:ro,nosuid,nodev,size=4096,mode=0555"]
    assert values_of(made, "--env") == ["FROM_IMAGE", "PATH=/bin"]


def test_the_workspace_is_the_only_writable_mount_at_its_own_path() -> None:
    made = plan(read_roots=("/opt/tools",), program="/home/alice/.cargo/bin/cargo")
    assert values_of(made, "--mount") == [
        "type=bind,source=/opt/tools,target=/opt/tools,readonly,bind-nonrecursive",
        f"type=bind,source={WS},target={WS}",
    ]


@pytest.mark.parametrize(("version", "word"), [("24.0.7", "bind-nonrecursive"), ("27.1", "bind-recursive=disabled")])
def test_each_docker_is_told_in_its_own_words_to_leave_out_what_is_mounted_below(version: str, word: str) -> None:
    made = plan(facts("docker", version=version), read_roots=("/opt/tools",))
    assert values_of(made, "--mount")[0].endswith(f",readonly,{word}")


def test_limits_of_the_call_are_the_containers() -> None:
    limits = Limits(
        cpu_ms=1500, memory_bytes=64 << 20, processes=7, open_files=99, file_bytes=1000, scratch_bytes=2 << 20
    )
    made = plan(facts(nproc=32768), limits=limits)
    assert values_of(made, "--memory") == values_of(made, "--memory-swap") == [str(64 << 20)]
    assert values_of(made, "--pids-limit") == ["7"]
    assert values_of(made, "--ulimit") == [
        "cpu=2:3",
        "nofile=99:99",
        "fsize=1000:1000",
        "core=0:0",
        "nproc=32768:32768",
    ]
    assert values_of(made, "--tmpfs") == [f"/tmp:rw,exec,nosuid,nodev,size={2 << 20},mode=1777"]
    without = plan(facts(memory=False, pids=False), limits=limits)
    assert f"data={64 << 20}:{64 << 20}" in values_of(without, "--ulimit")
    assert "--memory" not in words(without)


def test_the_program_is_the_images_own() -> None:
    made = plan()
    assert (made.program, made.program_sha256, made.argv) == ("git", "", ("git", "status"))
    assert [note.partition(":")[0] for note in made.degraded] == ["program_of_image", "command_line"]


def test_home_and_temporary_files_are_where_something_can_be_written() -> None:
    made = plan(env=(("HOME", "/home/agent"), ("TMPDIR", "/var/x"), ("K", "v=w")))
    assert made.env == (("HOME", "/tmp"), ("TMPDIR", "/tmp"), ("K", "v=w"))
    assert values_of(made, "--env") == ["HOME=/tmp", "TMPDIR=/tmp", "K=v=w"]


def test_a_shared_network_is_said_and_not_claimed() -> None:
    made = plan(net=NetGrant(EgressMode.NONE))
    assert values_of(made, "--network") == ["host"]
    assert made.guarantees == ALL - {Guarantee.NET_ISOLATED}
    assert any(note.startswith("network_shared") for note in made.degraded)


def test_without_root_the_user_keeps_its_number() -> None:
    assert values_of(plan(facts(rootless=True)), "--userns") == ["keep-id"]
    assert values_of(plan(facts(rootless=True)), "--user") == ["1001:1001"]
    assert values_of(plan(facts("docker", rootless=True)), "--user") == ["0:0"]


@promise("fs-isolated.tier-b-root")
def test_a_container_never_gets_group_0_of_a_workspace_that_is_not_roots() -> None:
    roots_group = WorkspaceSight(path="/srv/project", owner_uid=65534, owner_gid=0)
    assert values_of(plan(workspace=roots_group), "--user") == ["65534:65534"]


def test_what_cannot_be_kept_is_said() -> None:
    roots = WorkspaceSight(path="/srv/project", protected=("/srv/project/.git/hooks",))
    notes = [note.partition(":")[0] for note in plan(facts(selinux=True), workspace=roots).degraded]
    assert notes[2:] == ["root_owned_workspace", "selinux_off", "workspace_open"]


def test_only_the_clients_own_environment_reaches_the_client() -> None:
    assert plan().launcher_env == (("HOME", "/home/alice"), ("PATH", "/usr/bin"))


@pytest.mark.parametrize("path", ["/srv/a,readonly", '/srv/a"b', "/srv/a\nb"])
def test_a_path_that_a_client_would_take_apart_is_refused(path: str) -> None:
    with pytest.raises(Unenforceable):
        plan(workspace=WorkspaceSight(path=path, owner_uid=1001))
    with pytest.raises(Unenforceable):
        plan(read_roots=(path,))


def test_palyras_state_can_not_be_shown() -> None:
    backend, job = ContainerBackend("podman"), make_job()
    with pytest.raises(Unenforceable, match="state"):
        backend.plan(job, host_with(facts(), state_home=f"{WS}/.state"))
    with pytest.raises(Unenforceable, match="state"):
        backend.plan(replace(job, read_roots=("/srv/shared",)), host_with(facts(), state_home="/srv/shared/palyra"))


def test_on_windows_the_workspace_has_a_path_of_its_own_inside() -> None:
    place = WorkspaceSight(path="C:\\Users\\alice\\project", owner_uid=1000, owner_gid=1000)
    job = make_job(workspace=place, cwd="C:\\Users\\alice\\project\\src\\a")
    made = ContainerBackend("docker").plan(job, host_with(facts("docker"), platform=Platform.WINDOWS))
    assert values_of(made, "--mount") == ["type=bind,source=C:\\Users\\alice\\project,target=/work"]
    assert (made.cwd, values_of(made, "--workdir")) == ("/work/src/a", ["/work/src/a"])
