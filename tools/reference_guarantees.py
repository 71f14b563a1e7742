"""docs/guarantees.md: each guarantee, how each backend keeps it, and the attacks that must fail.

What is claimed is taken from plans that the backends really make, for a few machines described by values; how it is
kept is a sentence in `HOW`. A claim without its sentence, and a sentence without its claim, is an error. The attacks
are the promises of docs/security/promises.toml that have the guarantee as their source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from palyra.model.host import (
    BubblewrapFacts,
    CgroupFacts,
    ContainerFacts,
    Guarantee,
    HostFacts,
    Platform,
    SeatbeltFacts,
)
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK, EgressMode, HostKind, HostPattern, NetGrant
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.backend import Backend
from palyra.sandbox.planner import BACKENDS, needs_for
from palyra.sandbox.wasm import GUARANTEES
from reference_config import read_notes

PROJECT = Path(__file__).parents[1]
PROMISES = PROJECT / "docs" / "security" / "promises.toml"
OTHER_SOURCE = "threat model"

WASM = "wasm"
_RLIMIT_CPU = "`RLIMIT_CPU`, set before the program's first instruction; SIGXCPU, one second later SIGKILL"
_RLIMIT_DATA = "`RLIMIT_DATA` and the hard `RLIMIT_STACK`, set before the program's first instruction"
_CONTAINER_LIMIT = "the container's cgroup, where its limit was read back inside"
HOW: dict[tuple[Guarantee, str], str] = {
    (Guarantee.FS_ISOLATED, "bubblewrap"): "own mount namespace: read-only system folders, private tmpfs, a synthetic "
    "`/etc`, the workspace as the only writable bind, `/` sealed read-only; mounts inside the workspace are checked in "
    "the held sandbox",
    (Guarantee.FS_ISOLATED, "seatbelt"): "a profile that refuses by default; folders come in as parameters",
    (Guarantee.FS_ISOLATED, "podman"): "the image's file system, pinned by digest, read-only; a sized tmpfs; the "
    "workspace as the only writable mount",
    (
        Guarantee.FS_ISOLATED,
        "rlimit",
    ): "Landlock, version 3 or later, and a filter that refuses Unix sockets, where the "
    "child is not uid 0; modes, owners and times of the same user's files outside are **not** covered, nor that they "
    "exist",
    (Guarantee.NET_ISOLATED, "bubblewrap"): "own network namespace without any link to the host's; claimed in `strict` "
    "mode only",
    (Guarantee.NET_ISOLATED, "seatbelt"): "no rule of the profile allows a socket; claimed in `strict` mode only",
    (Guarantee.NET_ISOLATED, "podman"): "`--network none`; claimed in `strict` mode only",
    (Guarantee.NET_ISOLATED, "rlimit"): "a filter that refuses every socket, and Landlock's TCP rule (version 4 or "
    "later); claimed in `strict` mode only",
    (Guarantee.HOST_ALLOWLIST, "bubblewrap"): "in that empty namespace only listeners of Palyra's own, opened from "
    "outside before anything runs: a name server that knows the granted names, their ports, and a proxy; what is "
    "dialled is judged and pinned outside. Claimed in `strict` mode with granted hosts, where opening such listeners "
    "was seen to work",
    (Guarantee.CPU_LIMIT, "bubblewrap"): _RLIMIT_CPU,
    (Guarantee.CPU_LIMIT, "seatbelt"): _RLIMIT_CPU,
    (Guarantee.CPU_LIMIT, "podman"): "`RLIMIT_CPU`, set by the engine; the hard limit kills",
    (Guarantee.CPU_LIMIT, "rlimit"): _RLIMIT_CPU,
    (Guarantee.CPU_LIMIT, "jobobject"): "the job's limit on user time of each process",
    (Guarantee.MEMORY_LIMIT, "bubblewrap"): _RLIMIT_DATA,
    (Guarantee.MEMORY_LIMIT, "podman"): f"{_CONTAINER_LIMIT}; else `RLIMIT_DATA`",
    (Guarantee.MEMORY_LIMIT, "rlimit"): _RLIMIT_DATA,
    (Guarantee.MEMORY_LIMIT, "jobobject"): "the job's limit on each process",
    (Guarantee.MEMORY_LIMIT_TREE, "podman"): _CONTAINER_LIMIT,
    (Guarantee.MEMORY_LIMIT_TREE, "bubblewrap"): "a cgroup of the call's own, with `cgroup_limits = true`",
    (Guarantee.MEMORY_LIMIT_TREE, "rlimit"): "a cgroup of the call's own, with `cgroup_limits = true`",
    (Guarantee.MEMORY_LIMIT_TREE, "jobobject"): "the job's limit on all processes together",
    (Guarantee.PROCESS_LIMIT, "bubblewrap"): "`RLIMIT_NPROC`; where the sandbox keeps uid 0, `pid_max` of its own PID "
    "namespace (Linux 6.14), on older kernels a cgroup of the call's own",
    (Guarantee.PROCESS_LIMIT, "seatbelt"): "`RLIMIT_NPROC`, where the child is not uid 0",
    (Guarantee.PROCESS_LIMIT, "podman"): _CONTAINER_LIMIT,
    (
        Guarantee.PROCESS_LIMIT,
        "rlimit",
    ): "`RLIMIT_NPROC`, where the child is not uid 0; a cgroup of the call's own, with `cgroup_limits = true`",
    (Guarantee.PROCESS_LIMIT, "jobobject"): "the job's limit on active processes",
    (Guarantee.TREE_KILL, "bubblewrap"): "own PID namespace: killing its first process kills the rest, and its end is "
    "waited for before the outcome is given",
    (Guarantee.TREE_KILL, "podman"): "the engine removes the container, and its absence is seen before the outcome is "
    "given; containers of an engine that died are swept at the next start",
    (
        Guarantee.TREE_KILL,
        "rlimit",
    ): "with Landlock version 6 or later the call's own domain is killed in one step by a "
    "thread around it, and seen to be empty; else a cgroup and `cgroup.kill`, where the child cannot leave it: it runs "
    "under another uid, or Landlock keeps it in",
    (Guarantee.TREE_KILL, "jobobject"): "the job ends every process in it, also when the engine dies",
    (Guarantee.SYSCALL_FILTER, "bubblewrap"): "a seccomp filter, on x86_64 and aarch64",
    (Guarantee.SYSCALL_FILTER, "podman"): "the same filter as a profile of the engine's",
    (Guarantee.SYSCALL_FILTER, "rlimit"): "the same filter and more: no Unix sockets, no System V IPC, no limits or "
    "priorities of other processes",
    (Guarantee.FS_ISOLATED, WASM): "a guest has no file and no system call; its storage is a key-value space of its "
    "skill. Around it the worker's own tier C sandbox",
    (Guarantee.NET_ISOLATED, WASM): "a guest has no socket; the worker's sandbox has no network",
    (Guarantee.HOST_ALLOWLIST, WASM): "a request names a handle and a path, never a host; the host is looked up once, "
    "judged and pinned outside, and so is every redirect",
    (Guarantee.CPU_LIMIT, WASM): "fuel, counted by the compiled code itself; a deadline by a timer that needs no "
    "Python; the worker is killed from outside soon after it",
    (Guarantee.MEMORY_LIMIT, WASM): "the store's limits on memories and tables; the compiler's own are set before",
    (Guarantee.MEMORY_LIMIT_TREE, WASM): "the same: a guest has one store, and nothing beside it",
    (Guarantee.PROCESS_LIMIT, WASM): "a guest cannot start anything",
    (Guarantee.TREE_KILL, WASM): "the worker's PID namespace, as in tier C; not claimed in process",
    (Guarantee.SYSCALL_FILTER, WASM): "the worker's, as in tier C; not claimed in process",
}
SHARED = {"docker": "podman"}
"""Backends that keep everything in the same way as another."""
COLUMNS = {
    WASM: "tier A, wasm",
    "bubblewrap": "tier C, bubblewrap",
    "podman": "tier C, podman or docker",
    "seatbelt": "tier C, seatbelt (macOS)",
    "rlimit": "tier B, rlimit (Linux)",
    "jobobject": "tier B, jobobject (Windows)",
}

_LINUX = HostFacts(
    platform=Platform.LINUX,
    machine="x86_64",
    kernel="6.18",
    uid=1000,
    gid=1000,
    shell="/bin/sh",
    nsenter="/usr/bin/nsenter",
    setpriv="/usr/bin/setpriv",
    bubblewrap=BubblewrapFacts(path="/usr/bin/bwrap", version="0.8.0", disable_userns=True, listeners=True),
    landlock_abi=7,
    pid_max_per_namespace=True,
    home="/home/operator",
    state_home="/home/operator/.local/share/palyra",
)
_ROOT = replace(_LINUX, uid=0, gid=0, cgroup_kill="/sys/fs/cgroup/palyra")
_GROUPS = CgroupFacts(version=2, memory="/sys/fs/cgroup/palyra", pids="/sys/fs/cgroup/palyra")
_PODMAN = ContainerFacts(
    runtime="podman", path="/usr/bin/podman", version="5.0", image="sha256:…", memory=True, pids=True
)
_CONTAINERS = replace(_LINUX, bubblewrap=None, landlock_abi=0, shell="")
_SEATBELT = SeatbeltFacts(path="/usr/bin/sandbox-exec", base="", network="")
_MAC = replace(_CONTAINERS, platform=Platform.MACOS, shell="/bin/sh", seatbelt=_SEATBELT)
_WINDOWS = replace(_CONTAINERS, platform=Platform.WINDOWS, job_objects=True)
# how the machine reads in the page, its facts, the uid that owns the workspace
MACHINES: tuple[tuple[str, HostFacts, int], ...] = (
    ("a plain user", _LINUX, 1000),
    ("the same, without Landlock", replace(_LINUX, landlock_abi=0), 1000),
    ("root, in a workspace of a plain user", _ROOT, 1000),
    ("the same, without Landlock", replace(_ROOT, landlock_abi=0), 1000),
    ("root, in a workspace of root's own", _ROOT, 0),
    ("the same, with `cgroup_limits = true`", replace(_ROOT, cgroup_limits=_GROUPS), 0),
    ("the same, before Linux 6.14 (one `pid_max` for all)",
     replace(_ROOT, pid_max_per_namespace=False, cgroup_pids="/sys/fs/cgroup/palyra"), 0),
    ("the same, where no cgroup can be made, and without Landlock",
     replace(_ROOT, landlock_abi=0, pid_max_per_namespace=False, cgroup_kill=""), 0),
    ("anyone, with podman", replace(_CONTAINERS, container=_PODMAN), 1000),
    ("anyone, with docker", replace(_CONTAINERS, container=replace(_PODMAN, runtime="docker")), 1000),
    ("a plain user, with podman on cgroup v1",
     replace(_CONTAINERS, container=replace(_PODMAN, rootless=True, memory=False, pids=False)), 1000),
    ("a plain user on macOS", _MAC, 1000),
    ("anyone on Windows", _WINDOWS, 1000),
)  # fmt: skip


def make_guarantees() -> Iterator[str]:
    claims = {(backend.name, at): _claimed(backend, at) for backend in BACKENDS for at in range(len(MACHINES))}
    _check_how(claims)
    yield "# Guarantees"
    yield (
        "A guarantee is a promise with an attack that must fail. A backend claims one only where the host can keep it; "
        "a call states what it needs, and is refused with `UNENFORCEABLE` where no backend gives that. What was in "
        "force for a call stands in its attestation under `sandbox_enforcement.guarantees`, and what was wanted and "
        "absent under `degraded`. `palyra sandbox list` shows what holds on your host. Attacks run as root and as a "
        "plain user; [the list of tests](security/tests.md) names the tests of each, and where they run. No guarantee "
        "rests on the checks before the start alone. What is **not** promised is in "
        "[the threat model](threat-model.md)."
    )
    yield "\n".join(_promises())
    yield "## What a plan claims, by who runs Palyra"
    yield (
        "Linux with bubblewrap, util-linux and Landlock (version 7) unless it says otherwise; in `strict` mode where "
        "the backend can isolate the network, with a granted host where it can single hosts out, else in mode `none`. "
        "Root is assumed to have a writable "
        "cgroup v2 folder. For macOS and Windows the plans are made and tested, but nothing was attacked there: this "
        "version runs programs on Linux."
    )
    yield "\n".join(_matrix(claims))
    yield "A plan that claims less than its call needs is not run: it is refused with `UNENFORCEABLE`."
    yield "## What a call needs"
    yield "\n".join(_needs())
    yield "## The attacks"
    yield "Each is a promise. Its id leads to the tests that show it."
    for guarantee, attacks in read_attacks().items():
        yield f"### {guarantee}"
        yield "\n".join(f"- [`{name}`](security/tests.md#{_anchor(name)}): {says}" for name, says in attacks.items())


def _promises() -> Iterator[str]:
    notes, attacks = read_notes(Guarantee), read_attacks()
    yield f"| guarantee | the promise | {' | '.join(COLUMNS.values())} | attacked by |"
    yield "|---|---|" + "---|" * len(COLUMNS) + "---|"
    for guarantee in Guarantee:
        how = [HOW.get((guarantee, name), "not claimed") for name in COLUMNS]
        count = len(attacks.get(guarantee, ()))
        link = f"[{count} {'attacks' if count > 1 else 'attack'}](#{guarantee.lower()})" if count else "–"
        yield f"| `{guarantee}` | {notes[guarantee.name]} | {' | '.join(how)} | {link} |"


def _matrix(claims: dict[tuple[str, int], frozenset[Guarantee]]) -> Iterator[str]:
    yield "| Palyra runs as | backend | claims |"
    yield "|---|---|---|"
    for at, (title, _, _) in enumerate(MACHINES):
        for backend in BACKENDS:
            if claims[backend.name, at]:
                yield f"| {title} | {_title(backend)} | {_names(claims[backend.name, at])} |"


def _needs() -> Iterator[str]:
    yield "| tier | always needs | with `strict` egress also | with hosts also | wanted, reported when absent |"
    yield "|---|---|---|---|---|"
    some_host = NetGrant(EgressMode.STRICT, hosts=(_any_host(),))
    for tier in dict.fromkeys(backend.tier for backend in BACKENDS):
        always, wants = needs_for(tier, NetGrant(EgressMode.NONE))
        strict, _ = needs_for(tier, NO_NETWORK)
        hosts, _ = needs_for(tier, some_host)
        cells = (tier.value, _names(always), _names(strict - always), _names(hosts - strict), _names(wants))
        yield f"| {' | '.join(cells)} |"


def _any_host() -> HostPattern:
    return HostPattern(HostKind.EXACT, "example.org")


def _title(backend: Backend) -> str:
    return f"tier {backend.tier.value}, {backend.name}"


def _names(guarantees: frozenset[Guarantee]) -> str:
    return " ".join(f"`{g}`" for g in Guarantee if g in guarantees) or "–"


def _claimed(backend: Backend, at: int) -> frozenset[Guarantee]:
    _, host, owner = MACHINES[at]
    offered = backend.guarantees(host)
    if not offered:
        return frozenset()
    net = NO_NETWORK if Guarantee.NET_ISOLATED in offered else NetGrant(EgressMode.NONE)
    if Guarantee.HOST_ALLOWLIST in offered:
        net = NetGrant(EgressMode.STRICT, hosts=(_any_host(),))
    needs, wants = needs_for(backend.tier, net)
    job = Job(
        program="/usr/bin/true",
        program_sha256="",
        argv=("true",),
        env=(),
        cwd="/srv/work",
        workspace=WorkspaceSight(path="/srv/work", owner_uid=owner, owner_gid=owner),
        read_roots=(),
        limits=Limits(),
        net=net,
        tier=backend.tier,
        needs=needs,
        wants=wants,
    )
    return backend.plan(job, host).guarantees


def _check_how(claims: dict[tuple[str, int], frozenset[Guarantee]]) -> None:
    claimed = {(guarantee, SHARED.get(name, name)) for (name, _), given in claims.items() for guarantee in given}
    claimed |= {(guarantee, WASM) for guarantee in GUARANTEES}
    odd = sorted(f"{guarantee} of {name}" for guarantee, name in claimed ^ HOW.keys())
    if odd:
        raise LookupError(f"tools/reference_guarantees.py: HOW and the backends' claims differ: {odd[0]}")


def read_attacks() -> dict[Guarantee, dict[str, str]]:
    """Return the promises of each guarantee: id and sentence, in the order of the page."""
    found: dict[Guarantee, dict[str, str]] = {guarantee: {} for guarantee in Guarantee}
    for name, promise in tomllib.loads(PROMISES.read_text(encoding="utf-8")).items():
        if promise["source"] != OTHER_SOURCE:
            found[Guarantee[promise["source"]]][name] = promise["says"]
    return {guarantee: attacks for guarantee, attacks in found.items() if attacks}


def _anchor(name: str) -> str:
    return name.replace(".", "")
