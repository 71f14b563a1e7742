from __future__ import annotations

from palyra.model.call import Tier
from palyra.model.host import Guarantee, Platform
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import WorkspaceSight
from palyra.sandbox.rlimit import RlimitBackend
from tests.unit.sandbox.jobs import make_host, make_job

BACKEND = RlimitBackend()
OPEN = NetGrant(EgressMode.NONE)
LIMITS = {Guarantee.CPU_LIMIT, Guarantee.MEMORY_LIMIT}


def test_a_plain_users_child_is_limited_but_not_isolated() -> None:
    plan = BACKEND.plan(make_job(tier=Tier.B, net=OPEN), make_host())
    assert plan.guarantees == LIMITS | {Guarantee.PROCESS_LIMIT}
    assert plan.degraded == ("FS_ISOLATED", "TREE_KILL")
    assert (plan.launcher, plan.no_new_privileges, plan.pid_namespace) == ((), True, False)


def test_a_tree_kill_is_claimed_only_where_the_child_cannot_leave_its_cgroup() -> None:
    job = make_job(tier=Tier.B, net=OPEN)
    same_uid = BACKEND.plan(job, make_host(cgroup_kill="/sys/fs/cgroup/user"))
    assert Guarantee.TREE_KILL not in same_uid.guarantees
    other_uid = BACKEND.plan(job, make_host(uid=0, gid=0, cgroup_kill="/sys/fs/cgroup"))
    assert other_uid.guarantees == LIMITS | {Guarantee.PROCESS_LIMIT, Guarantee.TREE_KILL}
    assert (other_uid.run_as, other_uid.cgroup_parent) == ((1001, 1001), "/sys/fs/cgroup")


def test_root_in_a_root_owned_workspace_claims_the_least_and_says_so() -> None:
    job = make_job(tier=Tier.B, net=OPEN, workspace=WorkspaceSight(path="/srv/project"))
    plan = BACKEND.plan(job, make_host(uid=0, gid=0, cgroup_kill="/sys/fs/cgroup"))
    assert plan.guarantees == LIMITS
    assert [note.partition(":")[0] for note in plan.degraded] == [
        "FS_ISOLATED", "PROCESS_LIMIT", "TREE_KILL", "root_owned_workspace",
    ]  # fmt: skip


def test_paths_it_cannot_close_are_said() -> None:
    place = WorkspaceSight(path="/home/alice/p", owner_uid=1001, masked=("/home/alice/p/.env",))
    plan = BACKEND.plan(make_job(tier=Tier.B, net=OPEN, workspace=place), make_host())
    assert plan.degraded[-1].startswith("workspace_open")


def test_no_other_system_claims_it() -> None:
    assert BACKEND.guarantees(make_host(platform=Platform.WINDOWS)) == frozenset()
