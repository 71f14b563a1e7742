"""The machine the numbers were taken on, because a ratio means little without it. Touches /proc and runs `bwrap`."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from palyra import __version__

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs")


def read_machine(home: Path) -> dict[str, str | int | float]:
    """Facts for the record; `home` is where the journal is written, since a durable write costs what its disk costs."""
    return {
        "palyra": __version__,
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": read_field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": read_field("/proc/meminfo", "MemTotal"),
        "load_1m": round(os.getloadavg()[0], 2),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "bubblewrap": read_bwrap_version(),
        "started_by": "root" if os.geteuid() == 0 else "a plain user",
        "state_file_system": find_file_system(home),
    }


def read_field(file: str, name: str) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "unknown")


def read_bwrap_version() -> str:
    found = shutil.which("bwrap")
    if found is None:
        return "missing"
    return subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def find_file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`: the longest mount point above it wins, the last of equals."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kind
    for _, point, found, *_ in (line.split() for line in mounts):
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
