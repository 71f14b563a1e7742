from __future__ import annotations

from dataclasses import replace

import pytest

from palyra.errors import Unenforceable
from palyra.model.face import NetFace
from palyra.model.host import BubblewrapFacts, Guarantee, Platform
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, HostKind, HostPattern, NetGrant
from palyra.model.plan import Hole, ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox import starter
from palyra.sandbox.bwrap import BubblewrapBackend
from palyra.sandbox.mounts import workspace_of
from palyra.sandbox.seccomp import assemble
from palyra.sandbox.starter import START_FILE
from tests.unit.sandbox.jobs import make_host, make_job

ALL = {
    Guarantee.FS_ISOLATED,
    Guarantee.NET_ISOLATED,
    Guarantee.CPU_LIMIT,
    Guarantee.MEMORY_LIMIT,
    Guarantee.PROCESS_LIMIT,
    Guarantee.TREE_KILL,
    Guarantee.SYSCALL_FILTER,
}
ROOTS = WorkspaceSight(path="/srv/project")
BACKEND = BubblewrapBackend()
LISTENING = make_host(
    bubblewrap=BubblewrapFacts(path="/usr/bin/bwrap", version="0.9", disable_userns=True, listeners=True)
)


def words(plan: ProcessPlan) -> list[str]:
    return [f"{{{w.index}}}" if isinstance(w, Hole) else w for w in plan.launcher]


def after(plan: ProcessPlan, *option: str) -> int:
    """Where these words stand, one after the other."""
    said = words(plan)
    return next(at for at in range(len(said)) if said[at : at + len(option)] == list(option))


def test_the_mounts_come_in_the_documented_order() -> None:
    job = make_job(
        read_roots=("/opt/tools",),
        workspace=WorkspaceSight(
            path="/tmp/w", owner_uid=1001, protected=("/tmp/w/.git/hooks",), masked=("/tmp/w/.env", "/tmp/w/.palyra/")
        ),
    )
    plan = BACKEND.plan(job, make_host())
    order = [
        after(plan, "--die-with-parent", "--new-session"),
        after(plan, "--unshare-user"),
        after(plan, "--cap-drop", "ALL"),
        after(plan, "--ro-bind", "/usr", "/usr"),
        after(plan, "--dir", "/etc"),
        after(plan, "--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs"),
        after(plan, "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        after(plan, "--dev", "/dev", "--remount-ro", "/dev"),
        after(plan, "--tmpfs", "/dev/shm"),
        after(plan, "--tmpfs", "/tmp"),
        after(plan, "--ro-bind", "/opt/tools", "/opt/tools"),
        after(plan, "--bind", "/tmp/w", "/tmp/w"),
        after(plan, "--remount-ro", "/"),
        after(plan, "--clearenv"),
        after(plan, "--seccomp"),
        after(plan, "--info-fd", "{-1}", "--block-fd", "{-2}", "--"),
    ]
    assert order == sorted(order)
    assert plan.closed == (
        ("parent", "/tmp/w/.git"),
        ("protected", "/tmp/w/.git/hooks"),
        ("hidden_file", "/tmp/w/.env"),
        ("hidden_folder", "/tmp/w/.palyra"),
    )
    assert words(plan)[-1] == "--"


def test_the_hosts_time_zone_is_a_link_where_it_is_one_into_usr() -> None:
    zone = "/usr/share/zoneinfo/Europe/Vienna"
    linked, bound = (BACKEND.plan(make_job(), make_host(localtime=found)) for found in (zone, ""))
    assert after(linked, "--symlink", zone, "/etc/localtime") > after(linked, "--dir", "/etc")
    assert words(linked).count("/etc/localtime") == 1
    assert after(bound, "--ro-bind-try", "/etc/localtime", "/etc/localtime") > after(bound, "--dir", "/etc")


def test_toolchains_find_their_own_settings_in_etc() -> None:
    jdk = "/etc/java-17-openjdk"
    plan = BACKEND.plan(make_job(), make_host(etc_settings=(jdk,)))
    assert after(plan, "--ro-bind-try", jdk, jdk) > after(plan, "--dir", "/etc")


def test_the_hosts_root_is_never_bound() -> None:
    said = words(BACKEND.plan(make_job(), make_host()))
    binds = [said[at + 1] for at, word in enumerate(said) if word.endswith(("bind", "bind-try"))]
    assert "/" not in binds
    assert not {"/home", "/root", "/var", "/run", "/home/alice"} & set(binds)


def test_the_workspace_is_the_only_writable_bind() -> None:
    said = words(BACKEND.plan(make_job(read_roots=("/opt/tools",)), make_host()))
    assert [said[at + 1] for at, word in enumerate(said) if word in ("--bind", "--dev-bind")] == ["/home/alice/project"]


def test_every_tmpfs_has_a_size() -> None:
    said = words(BACKEND.plan(make_job(limits=Limits(scratch_bytes=5 << 20)), make_host()))
    sizes = {said[at + 1]: said[at - 1] for at, word in enumerate(said) if word == "--tmpfs"}
    assert sizes == dict.fromkeys(("/dev/shm", "/tmp", "/var/tmp", "/home/agent"), str(5 << 20))


def test_no_variable_or_argument_of_the_call_is_said_to_the_launcher() -> None:
    job = make_job(argv=("git", "SECRET-ARGUMENT"), env=(("K", "SECRET-VALUE"),), stdin=b"SECRET-INPUT")
    plan = BACKEND.plan(job, make_host())
    assert "SECRET" not in "".join(words(plan)) + repr(plan.data)
    assert (plan.argv, plan.env, plan.stdin) == (job.argv, job.env, job.stdin)


def test_the_filter_is_the_machines_own() -> None:
    for machine in ("x86_64", "aarch64"):
        assert assemble(machine, own_network=True) in BACKEND.plan(make_job(), make_host(machine=machine)).data


def test_interfaces_are_listed_only_in_a_network_of_the_programs_own() -> None:
    shared, ours = make_job(net=NetGrant(EgressMode.NONE)), make_job(own_files=(("/etc/palyra.py", b""),))
    for job in (shared, ours):
        data = BACKEND.plan(job, make_host()).data
        assert assemble("x86_64", own_network=True) not in data


def test_a_machine_without_a_filter_does_not_claim_one() -> None:
    plan = BACKEND.plan(make_job(), make_host(machine="riscv64"))
    assert plan.guarantees == ALL - {Guarantee.SYSCALL_FILTER}
    assert "--seccomp" not in words(plan)


def test_what_a_plain_user_gets() -> None:
    plan = BACKEND.plan(make_job(), make_host())
    assert plan.guarantees == ALL
    assert (plan.run_as, plan.namespace_pid_max, plan.pid_namespace) == (None, False, True)
    assert plan.degraded == ("MEMORY_LIMIT_TREE",)
    assert words(plan)[0] == "/usr/bin/bwrap"


def test_a_root_engine_starts_the_sandbox_as_the_workspaces_owner() -> None:
    plan = BACKEND.plan(make_job(), make_host(uid=0, gid=0))
    assert plan.run_as == (1001, 1001)
    assert words(plan)[:9] == [
        "/usr/bin/setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups", "--inh-caps=-all", "--",
        "/usr/bin/bwrap",
    ]  # fmt: skip
    assert plan.guarantees == ALL


def test_a_root_engine_that_cannot_change_its_uid_refuses_foreign_workspaces() -> None:
    with pytest.raises(Unenforceable, match="setpriv"):
        BACKEND.plan(make_job(), make_host(uid=0, gid=0, setpriv=""))


def test_root_in_a_root_owned_workspace_is_said_and_bounded_by_pid_max() -> None:
    plan = BACKEND.plan(make_job(workspace=ROOTS), make_host(uid=0, gid=0, pid_max_per_namespace=True))
    assert (plan.run_as, plan.namespace_pid_max, plan.guarantees) == (None, True, frozenset(ALL))
    assert [note.partition(":")[0] for note in plan.degraded] == ["MEMORY_LIMIT_TREE", "root_owned_workspace"]


def test_a_bound_above_the_limit_is_said() -> None:
    job = make_job(workspace=ROOTS, limits=Limits(processes=20))
    plan = BACKEND.plan(job, make_host(uid=0, gid=0, pid_max_per_namespace=True))
    assert any(note.startswith("process_limit: at most 320") for note in plan.degraded)


def test_root_without_pid_max_claims_no_process_limit() -> None:
    plan = BACKEND.plan(make_job(workspace=ROOTS), make_host(uid=0, gid=0))
    assert plan.guarantees == ALL - {Guarantee.PROCESS_LIMIT}


@pytest.mark.parametrize("mode", [EgressMode.NONE, EgressMode.PREFLIGHT])
def test_a_shared_network_is_said_and_not_claimed(mode: EgressMode) -> None:
    plan = BACKEND.plan(make_job(net=NetGrant(mode)), make_host())
    assert plan.guarantees == ALL - {Guarantee.NET_ISOLATED}
    assert any(note.startswith("network_shared") for note in plan.degraded)
    assert "--unshare-net" not in words(plan)
    assert "/etc/resolv.conf" in words(plan)


def test_a_host_allowlist_is_claimed_only_where_listeners_were_seen_and_hosts_are_granted() -> None:
    assert Guarantee.HOST_ALLOWLIST not in BACKEND.guarantees(make_host())
    net = NetGrant(EgressMode.STRICT, (HostPattern(HostKind.EXACT, "a.example"),))
    job, face = make_job(net=net), NetFace(tcp=(("0.0.0.0", 80),))
    assert Guarantee.HOST_ALLOWLIST in BACKEND.plan(replace(job, face=face), LISTENING).guarantees
    assert Guarantee.HOST_ALLOWLIST not in BACKEND.plan(make_job(), LISTENING).guarantees


def test_with_granted_hosts_the_proxy_is_named_in_both_spellings() -> None:
    plan = BACKEND.plan(make_job(face=NetFace(tcp=(("0.0.0.0", 80),))), LISTENING)
    named = {name: value for name, value in plan.env if name.lower().endswith("_proxy")}
    assert set(named) == {
        w for word in ("HTTP", "HTTPS", "ALL", "NO") for w in (f"{word}_PROXY", f"{word.lower()}_proxy")
    }
    assert {value for name, value in named.items() if name.lower() != "no_proxy"} == {"http://127.0.0.1:1023"}
    assert list(plan.env) == sorted(plan.env)


def test_package_caches_are_the_workspaces_own_and_come_after_it() -> None:
    face = NetFace(tcp=(("0.0.0.0", 80),))
    plan = BACKEND.plan(make_job(face=face), LISTENING)
    other = BACKEND.plan(make_job(face=face, workspace=replace(make_job().workspace, path="/srv/other")), LISTENING)
    assert len(plan.caches) == 2
    assert not set(plan.caches) & set(other.caches)
    assert all(path.startswith(f"{LISTENING.state_home}/caches/") for path in plan.caches)
    assert workspace_of(plan.launcher) == make_job().workspace.path


def test_no_cache_is_kept_without_granted_hosts_or_for_another_user() -> None:
    face = NetFace(tcp=(("0.0.0.0", 80),))
    root = replace(LISTENING, uid=0, gid=0, pid_max_per_namespace=True)
    assert BACKEND.plan(make_job(), LISTENING).caches == ()
    assert BACKEND.plan(make_job(face=NetFace()), LISTENING).caches == ()
    plan = BACKEND.plan(make_job(face=face), root)
    assert plan.caches == ()
    assert "package_caches: none outlive the call" in plan.degraded


def test_a_host_that_cannot_open_listeners_has_none_in_its_plan() -> None:
    assert BACKEND.plan(make_job(face=NetFace()), make_host()).face is None


def test_nothing_is_claimed_without_a_working_bubblewrap() -> None:
    for host in (make_host(bubblewrap=None), make_host(platform=Platform.MACOS), make_host(shell="")):
        assert BACKEND.guarantees(host) == frozenset()


def test_an_older_bubblewrap_is_not_asked_for_what_it_does_not_know() -> None:
    old = BubblewrapFacts(path="/usr/bin/bwrap", version="0.6.0", disable_userns=False)
    assert "--disable-userns" not in words(BACKEND.plan(make_job(), make_host(bubblewrap=old)))


def test_a_system_that_is_not_merged_binds_its_folders() -> None:
    plan = BACKEND.plan(make_job(), make_host(usr_merged=False))
    assert after(plan, "--ro-bind-try", "/lib64", "/lib64")
    said = words(plan)
    made = [said[at + 2] for at, word in enumerate(said) if word == "--symlink"]
    assert [place for place in made if not place.startswith("/etc/")] == []


def test_the_same_job_gives_the_same_plan() -> None:
    assert BACKEND.plan(make_job(), make_host()) == BACKEND.plan(replace(make_job()), make_host())


def test_where_our_start_program_runs_it_is_the_first_process_inside() -> None:
    plan = BACKEND.plan(make_job(), make_host(starter=True))
    at = after(plan, START_FILE) - 1
    hole = plan.launcher[at]
    assert isinstance(hole, Hole)
    assert plan.data[hole.index] == starter.assemble("x86_64", first=True)
    assert words(plan)[at - 3 : at] == ["--perms", "0555", "--file"]
    assert after(plan, "--as-pid-1") < after(plan, START_FILE) < after(plan, "--remount-ro", "/")
    assert words(plan)[-2:] == ["--", START_FILE]
    assert "--as-pid-1" not in words(BACKEND.plan(make_job(), make_host()))
