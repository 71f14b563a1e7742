"""A plan: everything that is needed to run a call, resolved, printable and hashable.

What is approved, run and attested is this same value; its digest is the one in the attestation.

Not here: what a plan is made from (sights, job), making one (sandbox), running it (launch).
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Literal, TypeAlias

from palyra.canon import Json, digest, sha256_hex
from palyra.model.call import Tier
from palyra.model.face import NetFace
from palyra.model.fetch import FetchOrder
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.net import HostPattern, NetGrant
from palyra.model.wasm import WasmPlan
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Hole:
    """A place in a launcher's argv for what is only known at the start: the number of a descriptor that will hold
    `data[index]`, or a path to it; a negative index is a place of the backend's own."""

    index: int
    before: str = ""
    """Text in front, in the same word."""
    path: bool = False


Word: TypeAlias = "str | Hole"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandlockRules:
    """What a plain child may touch of the host's files (Linux Landlock); everything not listed is refused."""

    abi: int
    """The kernel's version: what it can take away is taken away."""
    writable: str
    """The workspace, reached without following any link."""
    runnable: tuple[str, ...]
    """Read and executed, where they exist: system folders, granted folders, the program's own."""
    readable: tuple[str, ...]
    """Read, where they exist."""
    devices: tuple[str, ...]
    """Read and written, where they exist."""
    tcp: bool
    """False: no TCP connection and no TCP port."""
    granted: tuple[str, ...] = ()
    """Those of `runnable` that are reached without following any link, too."""

    def as_json(self) -> dict[str, Json]:
        return {
            "abi": self.abi,
            "writable": self.writable,
            "runnable": list(self.runnable),
            "readable": list(self.readable),
            "devices": list(self.devices),
            "tcp": self.tcp,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObjectLimits:
    """What a Windows job object bounds, in the units Windows takes."""

    flags: int
    process_time: int
    """User time of each process, in 100 ns."""
    active_processes: int
    process_memory: int
    job_memory: int
    ui_restrictions: int

    def as_json(self) -> dict[str, Json]:
        return {
            "flags": self.flags,
            "process_time": self.process_time,
            "active_processes": self.active_processes,
            "process_memory": self.process_memory,
            "job_memory": self.job_memory,
            "ui_restrictions": self.ui_restrictions,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """Everything needed to start one native program. rlimit, bwrap, docker … all compile to this."""

    backend: str
    executor: str
    """The label of contracts.md: sandbox_tier_c_linux_bubblewrap …"""
    tier: Tier
    launcher: tuple[Word, ...]
    """argv of what is started on the host; ends where the held shell's own argv begins. Empty: the shell itself."""
    launcher_env: tuple[tuple[str, str], ...] = ()
    """What the launcher itself needs of an environment; nothing of the call's."""
    road: Literal["held", "container", "job"] = "held"
    """How launch goes about it: a shell that waits inside, a container client, a Windows job object."""
    data: tuple[bytes, ...] = ()
    program: str
    program_sha256: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    limits: Limits
    net: NetGrant
    face: NetFace | None = None
    """What is listened on inside for the granted hosts; None where there are none, or nothing enforces them."""
    closed: tuple[tuple[str, str], ...] = ()
    """(kind, path) inside the workspace, closed by descriptor once every other mount is made: see inside/closing."""
    intercepted: tuple[HostPattern, ...] = ()
    """Hosts whose TLS is ended outside the sandbox; their authority is in the sandbox's own bundle."""
    authority: bytes = b""
    """Its certificate, the end of that bundle. Each process has one of its own, so what is written down of a plan says
    which hosts it stands for and leaves it out: a yes that was given in one process counts in the next."""
    caches: tuple[str, ...] = ()
    """Folders of this workspace alone, below Palyra's own state, made before the start where they are missing."""
    granted: tuple[str, ...] = ()
    """Folders the launcher shows that must be reached without following any link; it names them, too."""
    run_as: tuple[int, int] | None = None
    """(uid, gid) when a root engine starts the sandbox as someone else."""
    no_new_privileges: bool = True
    pid_namespace: bool = False
    """The program has a PID namespace of its own: killing its init kills the tree."""
    namespace_pid_max: bool = False
    """Bound the number of processes by pid_max of the sandbox's PID namespace (root; see spec/process.md)."""
    landlock: LandlockRules | None = None
    seccomp: bytes = b""
    """A filter that the spawning thread enters; a launcher that installs its own gets it as data."""
    job: JobObjectLimits | None = None
    cgroup_parent: str = ""
    cgroup_memory: str = ""
    """Where groups that bound the memory of the whole call are made; empty: not bounded that way."""
    cgroup_pids: str = ""
    guarantees: frozenset[Guarantee]
    degraded: tuple[str, ...] = ()
    stdin: bytes = b""
    stdin_streamed: bool = False
    lifetime: str = ""
    """`run_owned` or `detached` for a program that outlives its call; then `limits.wall_ms` is its lifetime."""
    kind: Literal["process"] = "process"

    def as_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "backend": self.backend,
            "executor": self.executor,
            "tier": self.tier.value,
            "launcher": list(_shown_words(self.launcher)),
            "launcher_env": [list(pair) for pair in self.launcher_env],
            "road": self.road,
            "data": list(_digests(self.data, self.authority)),
            "closed": [[kind, _shown(path)] for kind, path in self.closed],
            "program": _shown(self.program),
            "program_sha256": self.program_sha256,
            "argv": list(self.argv),
            "env": [list(pair) for pair in self.env],
            "cwd": _shown(self.cwd),
            "limits": self.limits.as_json(),
            "net": self.net.as_json(),
            **({"face": self.face.as_json()} if self.face else {}),
            **({"intercepted": [str(one) for one in self.intercepted]} if self.intercepted else {}),
            "run_as": list(self.run_as) if self.run_as else None,
            "no_new_privileges": self.no_new_privileges,
            "pid_namespace": self.pid_namespace,
            "namespace_pid_max": self.namespace_pid_max,
            "landlock": self.landlock.as_json() if self.landlock else None,
            "seccomp": sha256_hex(self.seccomp) if self.seccomp else None,
            "job": self.job.as_json() if self.job else None,
            "cgroup_parent": self.cgroup_parent,
            "cgroup_memory": self.cgroup_memory,
            "cgroup_pids": self.cgroup_pids,
            "guarantees": sorted(g.value for g in self.guarantees),
            "degraded": list(self.degraded),
            "stdin_sha256": sha256_hex(self.stdin),
            "stdin_streamed": self.stdin_streamed,
            **({"lifetime": self.lifetime} if self.lifetime else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinPlan:
    """A tool of Palyra's own, answered by the engine: no foreign code, no foreign data."""

    tool: str
    executor: str = "builtin"
    backend: str = "builtin"
    limits: Limits = field(default_factory=Limits)
    guarantees: frozenset[Guarantee] = frozenset()
    degraded: tuple[str, ...] = ()
    kind: Literal["builtin"] = "builtin"

    def as_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "tool": self.tool, "executor": self.executor, "limits": self.limits.as_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """A request over HTTP from outside every sandbox, and the program of ours that reads the answer inside one."""

    order: FetchOrder
    parser: ProcessPlan
    """Reads what came back; without any network."""
    kind: Literal["fetch"] = "fetch"

    @property
    def executor(self) -> str:
        return self.parser.executor

    @property
    def backend(self) -> str:
        return self.parser.backend

    @property
    def net(self) -> NetGrant:
        return self.order.net

    @property
    def limits(self) -> Limits:
        return self.parser.limits

    @property
    def guarantees(self) -> frozenset[Guarantee]:
        return self.parser.guarantees

    @property
    def degraded(self) -> tuple[str, ...]:
        return self.parser.degraded

    def as_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "order": self.order.as_json(), "parser": self.parser.as_json()}


Plan: TypeAlias = ProcessPlan | BuiltinPlan | FetchPlan | WasmPlan


def _shown(path: str) -> str:
    """A path of the host may hold bytes that are not UTF-8; in JSON they are spelled, or a hostile name in a workspace
    would leave calls that cannot be recorded."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode("utf-8")


@lru_cache(maxsize=128)
def _shown_words(words: tuple[Word, ...]) -> tuple[str, ...]:
    """Remembered: most calls of a run share their launcher."""
    return tuple(f"{w.before}{{{w.index}}}" if isinstance(w, Hole) else _shown(w) for w in words)


@lru_cache(maxsize=128)
def _digests(data: tuple[bytes, ...], authority: bytes) -> tuple[str, ...]:
    return tuple(sha256_hex(one.removesuffix(authority)) for one in data)


def plan_digest(plan: Plan) -> str:
    return digest(plan.as_json())
