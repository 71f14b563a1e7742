"""One cgroup v2 group for one call: everything the program starts stays in it, one write kills all of it.

Works without any controller: `cgroup.kill` and `cpu.stat` belong to every group. The group is made below a
folder the probe found writable, the *held* process is moved in before it becomes the program, and the group is
removed when the call ends. Not here: whether that may be promised (sandbox/rlimit).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from palyra.launch.executor import LaunchFailed

_STEP_S = 0.001


@dataclass(frozen=True, slots=True)
class Group:
    path: str

    def add(self, pid: int) -> None:
        _write(f"{self.path}/cgroup.procs", str(pid))

    def kill(self) -> bool:
        """False when the group cannot be killed that way (any more)."""
        try:
            _write(f"{self.path}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def cpu_us(self) -> int | None:
        try:
            with open(f"{self.path}/cpu.stat", encoding="ascii") as file:
                fields = dict(line.split() for line in file)
        except OSError:
            return None
        return int(fields["usage_usec"])

    async def remove(self, timeout_s: float) -> bool:
        """Wait until the last member is gone, then remove the group; False when it would not go."""
        for _ in range(max(1, int(timeout_s / _STEP_S))):
            try:
                os.rmdir(self.path)
            except FileNotFoundError:
                return True
            except OSError:
                await asyncio.sleep(_STEP_S)
            else:
                return True
        return False


def make_group(parent: str, name: str) -> Group:
    path = os.path.join(parent, f"palyra-{name}")
    try:
        os.mkdir(path, 0o755)
    except OSError as error:
        raise LaunchFailed(f"No cgroup could be made below {parent}: {error.strerror}.") from error
    return Group(path)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
