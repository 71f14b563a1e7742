from __future__ import annotations

from dataclasses import replace

import pytest

from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import CgroupFacts, Guarantee, HostFacts, Platform
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox import starter
from palyra.sandbox.rlimit import RlimitBackend
from palyra.sandbox.seccomp_b import assemble_b
from tests.unit.sandbox.jobs import make_host, make_job

BACKEND = RlimitBackend()
OPEN = NetGrant(EgressMode.NONE)
ROOTS = WorkspaceSight(path="/srv/project")
LIMITS = {Guarantee.CPU_LIMIT, Guarantee.MEMORY_LIMIT, Guarantee.SYSCALL_FILTER}
COUNTED = LIMITS | {Guarantee.PROCESS_LIMIT}
ALL = COUNTED | {Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED, Guarantee.TREE_KILL}
GROUPS = CgroupFacts(version=1, memory="/sys/fs/cgroup/memory", pids="/sys/fs/cgroup/pids")


def plan(host: HostFacts, *, net: NetGrant = OPEN, **changes: object) -> ProcessPlan:
    return BACKEND.plan(make_job(tier=Tier.B, net=net, **changes), host)


def notes(of: ProcessPlan) -> list[str]:
    return [note.partition(":")[0] for note in of.degraded]


def test_without_landlock_a_child_is_limited_but_not_isolated() -> None:
    made = plan(make_host())
    assert made.guarantees == COUNTED
    assert notes(made) == ["FS_ISOLATED", "TREE_KILL", "no_landlock", "network_shared"]
    assert (made.launcher, made.landlock, made.no_new_privileges, made.pid_namespace) == ((), None, True, False)
    assert made.env == make_job().env


@pytest.mark.parametrize(
    ("abi", "isolated"),
    [
        (1, set()),
        (2, set()),
        (3, {Guarantee.FS_ISOLATED}),
        (4, {Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED}),
        (5, {Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED}),
        (6, {Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED, Guarantee.TREE_KILL}),
        (7, {Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED, Guarantee.TREE_KILL}),
    ],
)
def test_each_version_of_landlock_lets_it_promise_what_it_can_keep(abi: int, isolated: set[Guarantee]) -> None:
    host = make_host(landlock_abi=abi)
    assert BACKEND.guarantees(host) == COUNTED | isolated
    assert plan(host, net=NO_NETWORK).guarantees == COUNTED | isolated
    assert (plan(host).landlock is None) == (abi < 3)


def test_a_shared_network_is_said_and_not_claimed() -> None:
    made = plan(make_host(landlock_abi=7))
    assert made.guarantees == ALL - {Guarantee.NET_ISOLATED}
    assert notes(made) == ["file_metadata", "network_shared"]


def test_the_filter_goes_with_the_network() -> None:
    host = make_host(landlock_abi=7)
    assert plan(host).seccomp == assemble_b("x86_64", network=True)
    assert plan(host, net=NO_NETWORK).seccomp == assemble_b("x86_64", network=False)


def test_without_a_filter_neither_files_nor_network_are_claimed() -> None:
    """A socket with a path is a way round any file wall, and Landlock alone does not close it."""
    made = plan(make_host(landlock_abi=7, machine="riscv64"), net=NO_NETWORK)
    assert made.guarantees == {
        Guarantee.CPU_LIMIT,
        Guarantee.MEMORY_LIMIT,
        Guarantee.PROCESS_LIMIT,
        Guarantee.TREE_KILL,
    }
    assert made.seccomp == b""
    assert made.landlock is not None


def test_temporary_files_go_where_the_program_may_write() -> None:
    made = plan(make_host(landlock_abi=7), env=(("PATH", "/bin"), ("TMPDIR", "/tmp")))
    assert made.env == (("PATH", "/bin"), ("TMPDIR", "/home/alice/project"))


def test_without_a_domain_a_tree_kill_needs_a_cgroup_that_the_child_cannot_leave() -> None:
    same_uid = plan(make_host(cgroup_kill="/sys/fs/cgroup/user"))
    assert Guarantee.TREE_KILL not in same_uid.guarantees
    kept_in = plan(make_host(cgroup_kill="/sys/fs/cgroup/user", landlock_abi=5))
    assert Guarantee.TREE_KILL in kept_in.guarantees
    other_uid = plan(make_host(uid=0, gid=0, cgroup_kill="/sys/fs/cgroup"))
    assert other_uid.guarantees == COUNTED | {Guarantee.TREE_KILL}
    assert (other_uid.run_as, other_uid.cgroup_parent) == ((1001, 1001), "/sys/fs/cgroup")


def test_a_domain_needs_no_cgroup() -> None:
    assert plan(make_host(cgroup_kill="/sys/fs/cgroup", landlock_abi=6)).cgroup_parent == ""


def test_in_a_workspace_of_roots_a_root_engine_starts_nobody() -> None:
    made = plan(make_host(uid=0, gid=0, landlock_abi=7), workspace=ROOTS)
    assert made.run_as == (65534, 65534)
    assert made.launcher[:6] == ("/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    assert {Guarantee.FS_ISOLATED, Guarantee.PROCESS_LIMIT} <= made.guarantees
    assert "root_owned_workspace" in notes(made)


def test_group_0_is_never_kept_beside_another_user() -> None:
    made = plan(make_host(uid=0, gid=0), workspace=replace(ROOTS, owner_uid=65534, owner_gid=0))
    assert made.run_as == (65534, 65534)
    assert plan(make_host(uid=0, gid=0), workspace=replace(ROOTS, owner_uid=7, owner_gid=8)).run_as == (7, 8)


def test_a_workspace_that_nobody_can_enter_is_refused_with_the_flag_that_keeps_root() -> None:
    closed = replace(ROOTS, open_to_all=False)
    with pytest.raises(Unenforceable, match="cannot enter it") as refused:
        plan(make_host(uid=0, gid=0), workspace=closed)
    assert "--allow-root-tier-b" in str(refused.value.hint)
    assert plan(make_host(uid=0, gid=0), workspace=closed, allow_root=True).run_as is None
    assert plan(make_host(), workspace=closed).run_as is None


def test_root_without_setpriv_starts_nothing_in_tier_b() -> None:
    with pytest.raises(Unenforceable, match="setpriv"):
        plan(make_host(uid=0, gid=0, setpriv=""), workspace=ROOTS)


def test_root_in_a_root_owned_workspace_claims_less_and_says_so() -> None:
    host = make_host(uid=0, gid=0, cgroup_kill="/sys/fs/cgroup")
    bare = plan(host, workspace=ROOTS, allow_root=True)
    assert bare.guarantees == LIMITS
    assert notes(bare)[:4] == ["FS_ISOLATED", "PROCESS_LIMIT", "TREE_KILL", "root_owned_workspace"]
    walled = plan(make_host(uid=0, gid=0, landlock_abi=7), workspace=ROOTS, net=NO_NETWORK, allow_root=True)
    assert walled.guarantees == LIMITS | {Guarantee.NET_ISOLATED, Guarantee.TREE_KILL}
    assert notes(walled) == ["FS_ISOLATED", "PROCESS_LIMIT", "root_owned_workspace"]


def test_groups_bound_the_whole_call_where_they_were_asked_for() -> None:
    made = plan(make_host(uid=0, gid=0, landlock_abi=7, cgroup_limits=GROUPS), workspace=ROOTS, allow_root=True)
    assert {Guarantee.MEMORY_LIMIT_TREE, Guarantee.PROCESS_LIMIT} <= made.guarantees
    assert (made.cgroup_memory, made.cgroup_pids, made.cgroup_parent) == (GROUPS.memory, GROUPS.pids, "")


def test_groups_that_the_child_could_leave_are_not_used() -> None:
    made = plan(make_host(uid=0, gid=0, cgroup_limits=GROUPS), workspace=ROOTS, allow_root=True)
    assert not {Guarantee.MEMORY_LIMIT_TREE, Guarantee.PROCESS_LIMIT} & made.guarantees
    assert (made.cgroup_memory, made.cgroup_pids) == ("", "")


def test_palyras_state_within_reach_is_said_and_nothing_claimed() -> None:
    made = plan(make_host(landlock_abi=7, state_home="/home/alice/project/.state"))
    assert Guarantee.FS_ISOLATED not in made.guarantees
    assert "state_visible" in notes(made)


def test_paths_it_cannot_close_are_said() -> None:
    place = WorkspaceSight(path="/home/alice/p", owner_uid=1001, masked=("/home/alice/p/.env",))
    assert notes(plan(make_host(landlock_abi=7), workspace=place))[-1] == "workspace_open"


def test_the_plan_shows_what_is_confined() -> None:
    shown = plan(make_host(landlock_abi=7), net=NO_NETWORK).as_json()
    assert shown["landlock"]["writable"] == "/home/alice/project"
    assert shown["landlock"]["tcp"] is False
    assert len(shown["seccomp"]) == 64


def test_no_other_system_claims_it() -> None:
    assert BACKEND.guarantees(make_host(platform=Platform.WINDOWS)) == frozenset()


def test_where_our_start_program_runs_it_waits_in_the_shells_place() -> None:
    made = plan(make_host(starter=True))
    assert (made.launcher, made.data) == ((starter.START_DATA,), (starter.assemble("x86_64", first=False),))
    as_owner = plan(make_host(starter=True, uid=0, setpriv="/usr/bin/setpriv"), workspace=replace(ROOTS, owner_uid=7))
    assert as_owner.launcher[-2:] == ("--", starter.START_DATA)
