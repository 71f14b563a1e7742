"""How much one call may use, and the ceilings no configuration can lift.

Units are in the names. `narrow` takes the smaller of each, so a run or a call can only ever ask for less.
"""

from __future__ import annotations

from dataclasses import fields

from palyra.errors import ConfigError
from palyra.values import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# name -> (smallest, largest) value that may be configured
CAPS: dict[str, tuple[int, int]] = {
    "wall_ms": (1, 24 * 3600 * 1000),
    "cpu_ms": (1, 24 * 3600 * 1000),
    "memory_bytes": (8 * MIB, 1 << 44),
    "processes": (1, 1 << 20),
    "output_bytes": (0, 1 << 32),
    "open_files": (16, 1 << 20),
    "file_bytes": (0, 1 << 44),
    "scratch_bytes": (1 * MIB, 1 << 40),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    wall_ms: int = 900_000
    cpu_ms: int = 3_600_000
    memory_bytes: int = 4 * GIB
    """Of each process (RLIMIT_DATA), and of the whole tree where the host has a cgroup."""
    processes: int = 2048
    output_bytes: int = 1 * MIB
    """stdout and stderr together."""
    open_files: int = 1024
    file_bytes: int = 4 * GIB
    """The largest single file a program may write."""
    scratch_bytes: int = 256 * MIB
    """Each private tmpfs inside tier C."""

    def __post_init__(self) -> None:
        for name, (low, high) in CAPS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} = {value} is outside {low} to {high}.", f"Choose {name} within that range.")

    def narrow(self, other: Limits) -> Limits:
        return Limits(**{f.name: min(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in CAPS}
