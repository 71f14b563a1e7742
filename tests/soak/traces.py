"""What calls could leave behind on this machine: read from /proc and the folders they were given.

Rules: everything the soak makes lies below one folder with a name of its own, the mark. A process counts as ours when
it descends from us or when its command line, environment, folder or mounts name the mark: so a double fork that
escaped to pid 1 is found, and other work on the same machine is not. What is counted is a set of names, not a number:
a leak that happens while something else goes away still shows.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from palyra.sandbox.etc_words import FOLDER_NAME

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_TELLING = ("cmdline", "environ", "mountinfo")
_SHARED = ("/dev/shm", "/run", "/var/tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    processes: frozenset[str]
    namespaces: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]
    descriptors: frozenset[str]
    threads: frozenset[str]
    cgroups: frozenset[str]

    def beyond(self, earlier: Traces) -> dict[str, list[str]]:
        """What is here and was not then; kinds without any are left out."""
        found = {name: sorted(getattr(self, name) - getattr(earlier, name)) for name in Traces.__slots__}
        return {name: names for name, names in found.items() if names}


def take_traces(mark: Path) -> Traces:
    ours = _processes(str(mark).encode())
    return Traces(
        processes=frozenset(f"{pid} {_command(pid)}" for pid in ours),
        namespaces=frozenset(name for pid in ours for name in _namespaces(str(pid)) - _namespaces("self")),
        mounts=_mounts(mark.name),
        files=_files(mark),
        descriptors=_descriptors(),
        threads=frozenset(thread.name for thread in threading.enumerate()),
        cgroups=_cgroups(),
    )


def _processes(mark: bytes) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parents[int(name)] = _parent(name)
    return [pid for pid in parents if pid != os.getpid() and (_descends(pid, parents) or _names_mark(pid, mark))]


def _parent(pid: str) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def _names_mark(pid: int, mark: bytes) -> bool:
    for name in _TELLING:
        try:
            if mark in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except OSError:
            continue
    try:
        return mark in os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:120]
    except OSError:
        return "?"


def _namespaces(pid: str) -> set[str]:
    found = set()
    for kind in NAMESPACES:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return found


def _mounts(mark: str) -> frozenset[str]:
    """Mounts of ours, and mounts that keep a namespace alive without a process."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        return frozenset(line for line in file if mark in line or " - nsfs " in line)


def _files(mark: Path) -> frozenset[str]:
    """Everything below the mark but what sandboxes show as their /etc, which stays for the next process, and files
    elsewhere with its name."""
    inside = {str(path.relative_to(mark)) for path in mark.rglob("*")}
    inside = {path for path in inside if FOLDER_NAME not in Path(path).parts or ".making-" in path}
    beside = {f"{folder}/{name}" for folder in _SHARED for name in _names(folder) if mark.name in name}
    return frozenset(inside | beside)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _descriptors() -> frozenset[str]:
    found = set()
    for number in _names("/proc/self/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:
            continue  # the one this very listing used
    return frozenset(found)


def _cgroups() -> frozenset[str]:
    """Groups of calls have random names: those of other work on this machine come and go, one of ours would stay."""
    return frozenset(str(path) for path in Path("/sys/fs/cgroup").glob("**/palyra-*"))
