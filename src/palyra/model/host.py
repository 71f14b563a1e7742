"""What this machine can enforce: guarantees, and the facts a probe found once.

Planning reads `HostFacts` and nothing else about the host, so the plan for any machine can be tested on any
other. Not here: looking (sandbox/probe), choosing by it (sandbox/planner).
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from palyra.values import dataclass


class Guarantee(StrEnum):
    """A promise with an attack that must fail (tests/conformance). docs/guarantees.md is made from this enum."""

    FS_ISOLATED = "FS_ISOLATED"
    """Nothing outside the workspace and the read-only system folders can be read; nothing else written."""
    NET_ISOLATED = "NET_ISOLATED"
    """No network at all but what the grant's own listeners offer."""
    HOST_ALLOWLIST = "HOST_ALLOWLIST"
    """Only the granted hosts can be reached."""
    CPU_LIMIT = "CPU_LIMIT"
    """Each process ends after its CPU time."""
    MEMORY_LIMIT = "MEMORY_LIMIT"
    """Each process is bounded in private memory."""
    MEMORY_LIMIT_TREE = "MEMORY_LIMIT_TREE"
    """All processes of the call together are bounded."""
    PROCESS_LIMIT = "PROCESS_LIMIT"
    """A fork bomb stops at the limit."""
    TREE_KILL = "TREE_KILL"
    """When the call ends, every process it started is gone, also after setsid and double forks."""
    SYSCALL_FILTER = "SYSCALL_FILTER"
    """Kernel entry points that programs do not need are refused (seccomp)."""


class Platform(StrEnum):
    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a backend cannot be used here, and what to do about it."""

    backend: str
    code: str
    detail: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapFacts:
    """A bubblewrap that was *seen* to isolate: a sandbox was started and looked at from inside."""

    path: str
    version: str
    disable_userns: bool
    """`--disable-userns` works here."""
    listeners: bool = False
    """Listeners were opened inside its network from outside, so granted hosts can be served there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFacts:
    """Folders below which groups with limits can be made. Probed by making one and moving a process into it."""

    version: int
    memory: str = ""
    """Empty where the memory controller cannot be used."""
    pids: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """A container engine and an image that were *seen* to isolate, in the exact profile."""

    runtime: str
    """podman or docker."""
    path: str
    """Of its client."""
    version: str
    image: str
    """Pinned by digest."""
    env: tuple[tuple[str, str], ...] = ()
    """What the client itself needs to find its engine; nothing of a call."""
    rootless: bool = False
    oci_runtime: str = ""
    """Named where the engine's own default does not work here."""
    nproc: int = 0
    """The highest process limit the engine may set; 0 leaves it alone."""
    memory: bool = False
    """The memory of a whole container is bounded: read back inside, not believed from an option."""
    pids: bool = False
    selinux: bool = False
    volumes: tuple[str, ...] = ()
    """Folders the image declares as volumes, where the engine cannot be told to ignore them."""
    variables: tuple[str, ...] = ()
    """Variables the image sets, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatbeltFacts:
    """A `sandbox-exec` and the text of the profile with which it was seen to isolate."""

    path: str
    base: str
    network: str
    """Added to `base` where the network is shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    platform: Platform
    machine: str
    """As the kernel names it: x86_64, aarch64 …"""
    kernel: str
    uid: int
    gid: int
    shell: str = ""
    """The /bin/sh that waits inside a sandbox for its launch message."""
    starter: bool = False
    """Our own start program was seen to run here; it waits inside in the shell's place."""
    nsenter: str = ""
    """util-linux's nsenter, for writing pid_max in a sandbox's own PID namespace."""
    setpriv: str = ""
    """util-linux's setpriv, with which a root engine starts a sandbox as the workspace's owner."""
    bubblewrap: BubblewrapFacts | None = None
    pid_max_per_namespace: bool = False
    cgroup_kill: str = ""
    """A cgroup v2 folder below which we may make groups and use cgroup.kill; empty where we may not."""
    cgroup_limits: CgroupFacts | None = None
    """Only where the operator asked for them: moving a process into a group costs some milliseconds a call."""
    cgroup_pids: str = ""
    """A folder below which the processes of one call can be counted; looked for where nothing else bounds uid 0's."""
    container: ContainerFacts | None = None
    seatbelt: SeatbeltFacts | None = None
    job_objects: bool = False
    """Windows: a job object was made and a process in it seen to end with it."""
    system_root: str = ""
    """Windows: the folder of the system, which programs look for in their environment."""
    landlock_abi: int = 0
    """The kernel's Landlock version as far as it was seen to work; 0 where it was not."""
    subreaper: bool = False
    """This process may collect orphans of its sandboxes, so usage is exact (not in embedders' processes)."""
    usr_merged: bool = True
    """/bin, /lib … are links into /usr."""
    localtime: str = ""
    """The file below /usr that /etc/localtime leads to; empty where it is no such link."""
    etc_settings: tuple[str, ...] = ()
    """What is there of toolchains' own settings below /etc, and for everybody to read."""
    home: str = ""
    state_home: str = ""
    """Palyra's own state folder: never visible inside a sandbox."""
    own_code: tuple[str, ...] = ()
    """What Palyra itself runs from: its environment (`.venv`) and its package."""
    blockers: tuple[Blocker, ...] = field(default=())
