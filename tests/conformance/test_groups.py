"""MEMORY_LIMIT_TREE, and PROCESS_LIMIT for uid 0: where the operator asked for cgroups and this host has them; and the
latter on kernels whose `pid_max` is everybody's, where nothing else counts uid 0's processes."""

from __future__ import annotations

import asyncio
import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import Reason, Unenforceable
from palyra.launch import held as launch_held
from palyra.launch.cgroup import Group, GroupSpec, make_group
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.sandbox.backend import keeps_root
from palyra.sandbox.planner import plan_job
from palyra.sandbox.probe import probe
from tests.conformance.arena import PRELUDE, PYTHON, Arena, Kept, Result
from tests.conformance.survivors import SURVIVOR, still_writing
from tests.promises import promise

pytestmark = pytest.mark.slow
WALL_MS = 120_000
"""An emulated machine, too, gets to the limit by then."""


@functools.cache
def grouped() -> HostFacts:
    return probe(home="/nonexistent", state_home="", search_path=(), cgroup_limits=True)


@pytest.fixture(autouse=True)
def _usable() -> None:
    if grouped().cgroup_limits is None:
        pytest.skip("no cgroup with a memory or pids controller can be made here")


def run(place: Arena, *argv: str, host: HostFacts | None = None, **changes: Any) -> Result:
    host = host or grouped()
    plan, output = plan_job(place.job(*argv, **changes), host), Kept()
    return Result(asyncio.run(ProcessExecutor(host).run(plan, output)), plan, output)


@functools.cache
def older() -> HostFacts:
    """The same machine, as if its kernel had one `pid_max` for all namespaces."""
    facts = grouped().cgroup_limits
    return replace(
        grouped(), pid_max_per_namespace=False, cgroup_limits=None, cgroup_pids=facts.pids if facts is not None else ""
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every group that this test's calls were given; a test beside this one may have some of its own."""
    paths: list[str] = []

    def make(spec: GroupSpec, name: str) -> Group:
        group = make_group(spec, name)
        paths.extend(group.paths)
        return group

    monkeypatch.setattr(launch_held, "make_group", make)
    return paths


def groups_left(made: list[str]) -> list[str]:
    return [path for path in made if os.path.exists(path)]


def need(result: Result, claimed: Guarantee) -> None:
    """A kernel without Landlock keeps no plain child of uid 0 in a group."""
    if claimed not in result.plan.guarantees:
        pytest.skip(f"not claimed: {result.plan.degraded}")


@promise("memory-limit-tree.many-processes")
def test_many_small_processes_together_stop_at_the_limit(place: Arena, made: list[str]) -> None:
    """Each stays below the limit of a process; a shared mapping does not even count there."""
    program = """
import mmap
for _ in range(6):
    if os.fork() == 0:
        held = [bytes(bytearray(8 << 20)) for _ in range(6)]
        shared = mmap.mmap(-1, 48 << 20)
        for at in range(0, len(shared), 4096):
            shared[at] = 1
        time.sleep(2)
        os._exit(0)
report(sum(os.wait()[1] == 9 for _ in range(6)))
"""
    limits = Limits(memory_bytes=128 << 20, wall_ms=WALL_MS)
    result = run(place, PYTHON, "-I", "-S", "-c", PRELUDE + program, limits=limits)
    need(result, Guarantee.MEMORY_LIMIT_TREE)
    assert result.execution.reason is Reason.MEMORY_LIMIT
    if result.output.stdout:  # the kernel may end the one that counts as well
        assert int(result.output.stdout) >= 4
    assert groups_left(made) == []


@promise("memory-limit-tree.shared-mapping")
def test_a_program_over_the_limit_of_the_tree_is_ended_and_named(place: Arena) -> None:
    program = (
        "import mmap\nm = mmap.mmap(-1, 512 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1\nprint('all of it')"
    )
    result = run(place, PYTHON, "-I", "-S", "-c", program, limits=Limits(memory_bytes=128 << 20, wall_ms=WALL_MS))
    need(result, Guarantee.MEMORY_LIMIT_TREE)
    assert (result.execution.status, result.execution.reason) == (Status.COMPLETED, Reason.MEMORY_LIMIT)
    assert (result.execution.signal, result.output.stdout) == (9, "")


BOMB = """
made = 1
try:
    while made < 1500:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError as error:
    report([made, errno.errorcode[error.errno]])
"""


@promise("process-limit.root")
def test_a_fork_bomb_stops_at_the_limit_for_root_too(place: Arena) -> None:
    result = run(place, PYTHON, "-I", "-S", "-c", PRELUDE + BOMB, limits=Limits(processes=50, wall_ms=WALL_MS))
    need(result, Guarantee.PROCESS_LIMIT)
    running, failed = result.json
    assert (failed, running <= 50) == ("EAGAIN", True), running


@promise("process-limit.older-kernel")
def test_without_pid_max_of_its_own_a_sandbox_of_uid_0_is_bounded_by_a_group_and_any_other_needs_none(
    place_c: Arena, made: list[str]
) -> None:
    limits = Limits(processes=50, wall_ms=WALL_MS)
    result = run(place_c, PYTHON, "-I", "-S", "-c", PRELUDE + BOMB, host=older(), limits=limits)
    assert Guarantee.PROCESS_LIMIT in result.plan.guarantees
    assert bool(result.plan.cgroup_pids) == keeps_root(place_c.job("/bin/true"), older())
    running, failed = result.json
    assert (failed, running <= 50) == ("EAGAIN", True), running
    assert groups_left(made) == []


@promise("process-limit.uncounted-root")
def test_where_nothing_counts_uid_0s_processes_the_call_is_refused(place_c: Arena) -> None:
    host = replace(older(), cgroup_pids="")
    if not keeps_root(place_c.job("/bin/true"), host):
        pytest.skip("another uid's are counted")
    with pytest.raises(Unenforceable, match="PROCESS_LIMIT"):
        plan_job(place_c.job("/bin/true"), host)


@promise("tree-kill.cgroup-escape")
def test_nobody_gets_out_of_the_group(place: Arena, made: list[str]) -> None:
    """Not by writing its pid elsewhere, and not by a double fork."""
    facts = grouped().cgroup_limits
    assert facts is not None
    folders = [folder for folder in (facts.memory, facts.pids, grouped().cgroup_kill) if folder]
    program = PRELUDE + "report([tried(write, path + '/cgroup.procs', str(os.getpid())) for path in sys.argv[1:]])"
    result = run(place, PYTHON, "-I", "-S", "-c", program, *folders)
    need(result, Guarantee.TREE_KILL)
    assert set(result.json) <= ({"ENOENT"} if place.tier is Tier.C else {"EACCES", "EPERM"})
    survivor = run(place, "/bin/sh", "-c", f'{PYTHON} -I -S -c "$0" x; sleep 0.2', SURVIVOR)
    assert Guarantee.TREE_KILL in survivor.plan.guarantees
    assert not still_writing(place)
    assert groups_left(made) == []


def test_a_folder_that_is_no_group_is_not_taken_for_one(tmp_path: Path) -> None:
    from palyra.sandbox import probe_kernel

    (tmp_path / "memory.max").write_text("max")
    assert not probe_kernel._try_limit(str(tmp_path), "memory.max", 64 << 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.max"]
