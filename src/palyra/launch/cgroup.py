"""Cgroups for one call: everything the program starts stays in them; one write kills all of it, two bound it.

`cgroup.kill` and `cpu.stat` belong to every group of version 2, without any controller. Limits on the memory and the
number of processes of the whole call need theirs: in version 2 the same group, in version 1 one in each hierarchy.
Groups are made below folders the probe found to work, the *held* process is moved in before it becomes the program,
and they are removed when the call ends. Not here: whether that may be promised (sandbox/rlimit).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable

from palyra.launch.executor import LaunchFailed
from palyra.model.plan import ProcessPlan
from palyra.values import dataclass

_STEP_S = 0.001
_PREFIX = "palyra-"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Below which folders, and the limits; an empty folder means: not that way."""

    kill: str = ""
    memory: str = ""
    pids: str = ""
    memory_bytes: int = 0
    processes: int = 0


def group_of(plan: ProcessPlan) -> GroupSpec | None:
    if not (plan.cgroup_parent or plan.cgroup_memory or plan.cgroup_pids):
        return None
    return GroupSpec(
        kill=plan.cgroup_parent,
        memory=plan.cgroup_memory,
        pids=plan.cgroup_pids,
        memory_bytes=plan.limits.memory_bytes if plan.cgroup_memory else 0,
        processes=plan.limits.processes if plan.cgroup_pids else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The groups of one call, one for each folder they were made below."""

    paths: tuple[str, ...]
    kill_path: str = ""
    """The one of them that can be killed; empty where there is none."""
    memory_path: str = ""

    def add(self, pid: int) -> None:
        for path in self.paths:
            _write(f"{path}/cgroup.procs", str(pid))

    def kill(self) -> bool:
        """False when the group cannot be killed that way (any more)."""
        if not self.kill_path:
            return False
        try:
            _write(f"{self.kill_path}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def cpu_us(self) -> int | None:
        text = _read(f"{self.kill_path}/cpu.stat") if self.kill_path else ""
        fields = dict(line.split() for line in text.splitlines())
        return int(fields["usage_usec"]) if fields else None

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed something here because all together used too much."""
        text = _read(f"{self.memory_path}/memory.events") or _read(f"{self.memory_path}/memory.oom_control")
        fields = dict(line.split() for line in text.splitlines())
        return bool(self.memory_path) and int(fields.get("oom_kill", "0")) > 0

    async def remove(self, timeout_s: float) -> bool:
        """Wait until the last member is gone, then remove the groups; False when one would not go."""
        left = list(self.paths)
        for _ in range(max(1, int(timeout_s / _STEP_S))):
            left = [path for path in left if not _removed(path)]
            if not left:
                return True
            await asyncio.sleep(_STEP_S)
        return False


def make_group(spec: GroupSpec, name: str) -> Group:
    made: dict[str, str] = {}
    try:
        for parent in dict.fromkeys(filter(None, (spec.kill, spec.memory, spec.pids))):
            path = os.path.join(parent, f"{_PREFIX}{name}")
            os.mkdir(path, 0o755)
            made[parent] = path
        if spec.memory:
            _bound_memory(made[spec.memory], spec.memory_bytes)
        if spec.pids:
            _write(f"{made[spec.pids]}/pids.max", str(spec.processes))
    except OSError as error:
        for path in made.values():
            _removed(path)
        raise LaunchFailed(f"No cgroup could be made for the call: {error.strerror} ({error.filename}).") from error
    return Group(paths=tuple(made.values()), kill_path=made.get(spec.kill, ""), memory_path=made.get(spec.memory, ""))


def empty_groups(parents: Iterable[str], *, before_unix_s: float) -> list[str]:
    """Groups of ours that hold nobody and were made before then: whoever made them died before it could remove them.

    A group is empty for a moment after it is made, so a young one is left alone. The kernel gives a group's folder a
    new time when it has forgotten the old one: it may look too young, never too old.
    """
    found = []
    for parent in dict.fromkeys(filter(None, parents)):
        with contextlib.suppress(OSError):
            found += [entry.path for entry in os.scandir(parent) if _is_left(entry, before_unix_s)]
    return sorted(found)


def _is_left(entry: os.DirEntry[str], before_unix_s: float) -> bool:
    if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
        return False
    try:
        seen = entry.stat(follow_symlinks=False)
        with open(f"{entry.path}/cgroup.procs", encoding="ascii") as file:
            return max(seen.st_ctime, seen.st_mtime) < before_unix_s and not file.read(1)
    except OSError:
        return False


def remove_empty(path: str) -> bool:
    """False when somebody is in it after all: the kernel refuses."""
    return _removed(path)


def _bound_memory(path: str, limit: int) -> None:
    """Swap counts too, where the kernel accounts it: otherwise the limit would only move pages to disk."""
    if os.path.exists(f"{path}/memory.max"):
        _write(f"{path}/memory.max", str(limit))
        with contextlib.suppress(FileNotFoundError):
            _write(f"{path}/memory.swap.max", "0")
    else:
        _write(f"{path}/memory.limit_in_bytes", str(limit))
        with contextlib.suppress(FileNotFoundError):
            _write(f"{path}/memory.memsw.limit_in_bytes", str(limit))


def _removed(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
