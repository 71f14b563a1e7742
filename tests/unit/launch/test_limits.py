from __future__ import annotations

import resource

import pytest

from palyra.launch import limits as under_test
from palyra.launch.limits import Step, limit_steps, own_limits
from palyra.model.limits import Limits

ASKED = Limits(cpu_ms=1500, memory_bytes=64 << 20, processes=20, open_files=100, file_bytes=1025)


@pytest.fixture(autouse=True)
def _unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings = {
        resource.RLIMIT_STACK: (8 << 20, resource.RLIM_INFINITY),
        resource.RLIMIT_RTPRIO: (0, 0),
        resource.RLIMIT_NICE: (0, 0),
    }
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: ceilings.get(kind, unlimited))
    monkeypatch.setattr(under_test, "tasks_of", lambda uid: {0: 9, 1001: 7}[uid])


def test_units_are_rounded_to_what_shells_and_the_kernel_count_in() -> None:
    memory = 64 << 20
    assert limit_steps(ASKED, uid=0, own_user_namespace=True) == (
        Step("t", 2, 3, resource.RLIMIT_CPU, (2, 3)),
        Step("d", 65536, 65536, resource.RLIMIT_DATA, (memory, memory)),
        Step("s", 8192, 65536, resource.RLIMIT_STACK, (8 << 20, memory)),
        Step("n", 100, 100, resource.RLIMIT_NOFILE, (100, 100)),
        Step("f", 2, 2, resource.RLIMIT_FSIZE, (1025, 1025)),
        Step("c", 0, 0, resource.RLIMIT_CORE, (0, 0)),
    )


def test_processes_are_counted_above_those_the_user_has_outside_a_namespace() -> None:
    assert limit_steps(ASKED, uid=1001, own_user_namespace=False)[-1] == Step(
        "processes", 26, 26, resource.RLIMIT_NPROC, (26, 26)
    )


@pytest.mark.parametrize(("modern", "count"), [(True, 20), (False, 26)])
def test_older_kernels_count_across_user_namespaces(monkeypatch: pytest.MonkeyPatch, modern: bool, count: int) -> None:
    monkeypatch.setattr(under_test, "kernel_at_least", lambda major, minor: modern)
    assert limit_steps(ASKED, uid=1001, own_user_namespace=True)[-1] == Step(
        "processes", count, count, resource.RLIMIT_NPROC, (count, count)
    )


def test_nothing_is_raised_above_what_was_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, 10))
    steps = {step.flag: (step.soft, step.hard) for step in limit_steps(ASKED, uid=1001, own_user_namespace=True)}
    assert steps["n"] == (10, 10)
    assert steps["t"] == (2, 3)
    assert steps["processes"] == (10, 10)


def test_what_waits_inherited_its_ceilings_when_it_was_started() -> None:
    """Not what this process may have by now: raised since, a limit above the inherited one could not be set."""
    inherited = tuple((7, 7) for _ in own_limits())
    for step in limit_steps(ASKED, uid=0, own_user_namespace=True, inherited=inherited):
        assert max(step.exact) <= 7, step


def test_a_program_does_not_take_every_core_where_its_operator_may_run_in_real_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users of sound may have 95: a program that inherits it spins before everything else on the machine, us too."""
    known = resource.getrlimit
    raised = {resource.RLIMIT_RTPRIO: (0, 95), resource.RLIMIT_NICE: (31, 31)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: raised.get(kind) or known(kind))
    assert limit_steps(ASKED, uid=0, own_user_namespace=True)[-2:] == (
        Step("rtprio", 0, 0, resource.RLIMIT_RTPRIO, (0, 0)),
        Step("nice", 0, 0, resource.RLIMIT_NICE, (0, 0)),
    )
