"""The kernel's limits on one program: in force on the held shell, which becomes it, before its first instruction.

Set from outside while the shell is held (`limit_held`), or by the shell on itself where the kernel wants a capability
for that (root in a container, when the sandbox runs as someone else); either way nothing the program starts can be
without them (`prlimit` after a start loses to a program that forks at once). Limits are only ever lowered: what this
process inherited is the ceiling.
Units: seconds, KiB and blocks of 512 bytes, rounded so that a limit is never above what was asked.

RLIMIT_DATA, not AS: runtimes that reserve address space (node) cannot start under AS. The hard stack limit is
lowered too, because the main stack does not count as data and a program could ask for an unlimited one. Where we may
run in real time or before others (users of sound, services), a program may not: it would take every core for itself.

Not here: which limits (model/limits), process counts by pid_max or cgroups (held, cgroup).
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from palyra.launch._os import kernel_at_least, tasks_of
from palyra.model.limits import Limits
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    flag: str
    """Of the shell's `ulimit`; a word where shells differ."""
    soft: int
    hard: int
    kind: int = resource.RLIMIT_CORE
    exact: tuple[int, int] = (0, 0)
    """The kernel's own name and units for the same."""


_KINDS = (
    resource.RLIMIT_CPU,
    resource.RLIMIT_DATA,
    resource.RLIMIT_STACK,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_CORE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_RTPRIO,
    resource.RLIMIT_NICE,
)
Ceilings: TypeAlias = tuple[tuple[int, int], ...]
"""(soft, hard) of each of `_KINDS`."""


def own_limits() -> Ceilings:
    """What a process inherits that is started now."""
    return tuple(map(resource.getrlimit, _KINDS))


def limit_steps(
    limits: Limits, *, uid: int, own_user_namespace: bool, inherited: Ceilings | None = None
) -> tuple[Step, ...]:
    """`inherited`: by the process that waits; else what one would that is started now."""
    processes = None
    if uid != 0:  # the kernel does not count uid 0's processes
        others = counts_others(uid=uid, own_user_namespace=own_user_namespace)
        processes = limits.processes + (tasks_of(uid) - 1 if others else 0)  # the held shell itself is among them
    return _steps(limits, processes, inherited or own_limits())


def counts_others(*, uid: int, own_user_namespace: bool) -> bool:
    """Whether a limit on processes has to leave room for the user's others, which come and go. Since 5.14 the kernel
    counts the processes of a user namespace apart from those outside."""
    return uid != 0 and not (own_user_namespace and kernel_at_least(5, 14))


@lru_cache(maxsize=64)
def _steps(limits: Limits, processes: int | None, inherited: Ceilings) -> tuple[Step, ...]:
    ceilings = dict(zip(_KINDS, inherited, strict=True))
    cpu_s = -(-limits.cpu_ms // 1000)
    memory, stack = limits.memory_bytes, ceilings[resource.RLIMIT_STACK][0]

    def step(flag: str, kind: int, soft: int, hard: int, *, unit: int) -> Step:
        ceiling = ceilings[kind][1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        return Step(flag, soft // unit, hard // unit, kind, (soft, hard))

    steps = [
        # one second between SIGXCPU and SIGKILL, so that the end can be named
        step("t", resource.RLIMIT_CPU, cpu_s, cpu_s + 1, unit=1),
        step("d", resource.RLIMIT_DATA, memory, memory, unit=1024),
        step("s", resource.RLIMIT_STACK, memory if stack < 0 else min(stack, memory), memory, unit=1024),
        step("n", resource.RLIMIT_NOFILE, limits.open_files, limits.open_files, unit=1),
        step("f", resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes, unit=512),
        step("c", resource.RLIMIT_CORE, 0, 0, unit=512),
    ]
    if processes is not None:
        steps.append(step("processes", resource.RLIMIT_NPROC, processes, processes, unit=1))
    for flag, kind in (("rtprio", resource.RLIMIT_RTPRIO), ("nice", resource.RLIMIT_NICE)):
        if ceilings[kind] != (0, 0):  # which it is for nearly everybody
            steps.append(step(flag, kind, 0, 0, unit=1))
    return tuple(steps)


def limit_held(pids: Sequence[int], steps: Sequence[Step]) -> bool:
    """The limits on processes that are held, from outside. On the shell: it becomes the program, so they are in force
    before that begins. On the sandbox's first process too: it has the program's uid, and a program that takes it over
    would otherwise be rid of every limit. False where the kernel lets only the sandbox itself do it: nothing is missing
    then but what the shell is told to do itself."""
    try:
        for pid in pids:
            for step in steps:
                resource.prlimit(pid, step.kind, step.exact)
    except PermissionError:
        return False
    return True
