"""The table of backends in order of preference, and the choice: the first that guarantees enough; none, refused.

Fails closed: needs ⊆ what the finished plan guarantees, checked on the plan itself; a call never slides to a
weaker tier by itself. `choose_tier` runs before policy decides, so policy always sees the tier that will run:
tier B is taken only when asked for, or for `auto` where the operator configured that fallback, no tier C backend
can serve the call and tier B can.

Not here: what each backend promises (bwrap, rlimit), what the host can do (probe).
"""

from __future__ import annotations

from enum import StrEnum

from palyra.errors import Unenforceable
from palyra.model.call import Tier, TierChoice
from palyra.model.host import Guarantee, HostFacts, Platform
from palyra.model.job import Job
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant
from palyra.model.plan import ProcessPlan
from palyra.sandbox.backend import Backend
from palyra.sandbox.bwrap import BubblewrapBackend
from palyra.sandbox.docker import ContainerBackend
from palyra.sandbox.jobobject import JobObjectBackend
from palyra.sandbox.rlimit import RlimitBackend
from palyra.sandbox.seatbelt import SeatbeltBackend

BACKENDS: tuple[Backend, ...] = (
    BubblewrapBackend(),
    SeatbeltBackend(),
    ContainerBackend("podman"),
    ContainerBackend("docker"),
    RlimitBackend(),
    JobObjectBackend(),
)


class Carried(StrEnum):
    """What a call may want of a backend beside guarantees."""

    OWN_PROGRAMS = "own_programs"
    """Programs of Palyra's own and of this host: file tools, fetching, guests, the building of skills."""
    BACKGROUND = "background"
    """A program that outlives its call."""
    LISTENERS = "listeners"
    """Granted hosts, served inside."""


CARRIES: dict[str, frozenset[Carried]] = {
    "bubblewrap": frozenset(Carried),
    "seatbelt": frozenset(),
    "podman": frozenset(),
    "docker": frozenset(),
    "rlimit": frozenset({Carried.BACKGROUND}),
    "jobobject": frozenset(),
}
"""A container has its image's programs alone, and is ended with its client; only bubblewrap's network is entered."""
_CANNOT = {
    Carried.OWN_PROGRAMS: "a {name} sandbox has no programs of Palyra's own: no file tools, no fetching, no guests, no "
    "building of skills",
    Carried.BACKGROUND: "nothing in a {name} sandbox outlives its call",
    Carried.LISTENERS: "single hosts cannot be served in the network of a {name} sandbox",
}
_INSTEAD = {
    Carried.OWN_PROGRAMS: "palyra.process.run still runs the programs that are there.",
    Carried.BACKGROUND: "Run it in the foreground.",
    Carried.LISTENERS: "Leave out the allowed hosts for no network at all.",
}

_NEEDS: dict[Tier, frozenset[Guarantee]] = {
    Tier.C: frozenset(
        {
            Guarantee.FS_ISOLATED,
            Guarantee.CPU_LIMIT,
            Guarantee.MEMORY_LIMIT,
            Guarantee.PROCESS_LIMIT,
            Guarantee.TREE_KILL,
            Guarantee.SYSCALL_FILTER,
        }
    ),
    Tier.B: frozenset({Guarantee.CPU_LIMIT, Guarantee.MEMORY_LIMIT}),
}
_WANTS: dict[Tier, frozenset[Guarantee]] = {
    Tier.C: frozenset({Guarantee.MEMORY_LIMIT_TREE}),
    Tier.B: frozenset({Guarantee.FS_ISOLATED, Guarantee.PROCESS_LIMIT, Guarantee.TREE_KILL, Guarantee.SYSCALL_FILTER}),
}


def needs_for(tier: Tier, net: NetGrant) -> tuple[frozenset[Guarantee], frozenset[Guarantee]]:
    """(needs, wants) of a native call."""
    needs = _NEEDS[tier]
    if net.mode is EgressMode.STRICT:
        needs |= {Guarantee.NET_ISOLATED}
        if net.hosts:
            needs |= {Guarantee.HOST_ALLOWLIST}
    return needs, _WANTS[tier] - needs


def choose_tier(
    choice: TierChoice,
    host: HostFacts,
    net: NetGrant,
    *,
    fallback: str = "",
    backends: tuple[Backend, ...] = BACKENDS,
) -> Tier:
    """The tier a call gets. Where it cannot be had, planning refuses; nothing is decided here by failing."""
    if choice is TierChoice.B:
        return Tier.B
    may_fall_back = choice is TierChoice.AUTO and fallback == "b"
    if may_fall_back and not _served(Tier.C, host, net, backends) and _served(Tier.B, host, net, backends):
        return Tier.B
    return Tier.C


def walls_off_files(tier: Tier, host: HostFacts, backends: tuple[Backend, ...] = BACKENDS) -> bool:
    """Whether a program of this tier opens no file that it was not shown."""
    return any(backend.tier is tier and Guarantee.FS_ISOLATED in backend.guarantees(host) for backend in backends)


def carried(job: Job) -> frozenset[Carried]:
    wanted = {
        Carried.OWN_PROGRAMS: bool(job.own_files) or job.own_program,
        Carried.BACKGROUND: job.background,
        Carried.LISTENERS: job.tier is Tier.C and job.net.mode is EgressMode.STRICT and bool(job.net.hosts),
    }
    return frozenset(one for one, is_wanted in wanted.items() if is_wanted)


def check_own_programs(host: HostFacts, backends: tuple[Backend, ...] = BACKENDS) -> None:
    """Raise Unenforceable where no tier C sandbox of this host runs programs of Palyra's own."""
    needs, _ = needs_for(Tier.C, NO_NETWORK)
    able = _carrying(Tier.C, frozenset({Carried.OWN_PROGRAMS}), host, backends)
    missing = [needs - backend.guarantees(host) for backend in able]
    if not any(not lacking for lacking in missing):
        raise _unenforceable(Tier.C, min(missing, key=len, default=needs), host, able)


def plan_job(job: Job, host: HostFacts, backends: tuple[Backend, ...] = BACKENDS) -> ProcessPlan:
    """Raises Unenforceable. A backend may promise less for this job than for the host: the plan is what counts."""
    lacking: list[frozenset[Guarantee]] = []
    of_tier = _carrying(job.tier, carried(job), host, backends)
    for backend in of_tier:
        missing = job.needs - backend.guarantees(host)
        if not missing:
            plan = backend.plan(job, host)
            missing = job.needs - plan.guarantees
            if not missing:
                return plan
        lacking.append(missing)
    raise _unenforceable(job.tier, min(lacking, key=len, default=job.needs), host, of_tier)


def _carrying(tier: Tier, wanted: frozenset[Carried], host: HostFacts, backends: tuple[Backend, ...]) -> list[Backend]:
    """Those of the tier that carry all of it. Raises Unenforceable where one works here, but none that does."""
    able = [b for b in backends if b.tier is tier and wanted <= CARRIES.get(b.name, frozenset())]
    working = [b for b in backends if b.tier is tier and b.guarantees(host)]
    if not working or any(b in able for b in working):
        return able
    first = next(one for one in Carried if one in wanted - CARRIES.get(working[0].name, frozenset()))
    fixes = [blocker.fix for blocker in host.blockers if any(blocker.backend == b.name for b in able)]
    raise Unenforceable(
        (Guarantee.HOST_ALLOWLIST.value,) if first is Carried.LISTENERS else (),
        f"Tier {tier.value} is {working[0].name} here, and {_CANNOT[first].format(name=working[0].name)}.",
        f"{_INSTEAD[first]} An operator: {fixes[0] if fixes else 'palyra doctor says which sandboxes are to be had.'}",
    )


def _served(tier: Tier, host: HostFacts, net: NetGrant, backends: tuple[Backend, ...]) -> bool:
    needs, _ = needs_for(tier, net)
    return any(backend.tier is tier and needs <= backend.guarantees(host) for backend in backends)


def _unenforceable(
    tier: Tier, missing: frozenset[Guarantee], host: HostFacts, backends: list[Backend]
) -> Unenforceable:
    names = tuple(sorted(g.value for g in missing))
    blockers = [b for b in host.blockers if any(b.backend == backend.name for backend in backends)]
    blocked = blockers and not any(backend.guarantees(host) for backend in backends)
    if blocked:
        return Unenforceable(
            names, f"{blockers[0].detail} So this host has no tier {tier.value} sandbox.", blockers[0].fix
        )
    said = f"No tier {tier.value} sandbox on this host can enforce {', '.join(names)}."
    return Unenforceable(names, said, _hint(tier, missing, host))


def _hint(tier: Tier, missing: frozenset[Guarantee], host: HostFacts) -> str:
    if tier is Tier.C and host.platform is not Platform.LINUX and host.container is None:
        return "Set container_image in [tool_call.process_runner]: here tier C needs docker or podman."
    if tier is Tier.B and Guarantee.NET_ISOLATED in missing:
        return (
            "Use --tier c, or --egress preflight or none, which do not ask the kernel to enforce egress. "
            "Tier B can do it on x86_64 and aarch64 with Linux 6.7 or later, where Landlock is switched on."
        )
    if tier is Tier.B and Guarantee.HOST_ALLOWLIST in missing:
        return "Use --tier c: single hosts can only be allowed in a network of the program's own."
    if Guarantee.HOST_ALLOWLIST in missing:
        return "Leave out the allowed hosts for no network at all, or use --egress preflight or none."
    if Guarantee.PROCESS_LIMIT in missing:
        return (
            "Run Palyra as a plain user, or give the workspace to one: this kernel does not count uid 0's processes, "
            "and no cgroup can be made here that would."
        )
    if Guarantee.SYSCALL_FILTER in missing:
        return "There is no system call filter for this machine yet; x86_64 and aarch64 have one."
    return "Run `palyra doctor` to see what this host can enforce and what blocks the rest."
