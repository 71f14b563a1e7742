"""Touches: /proc. Who has a call in its hands, and whether that process still lives.

A pid alone can be reused: boot id and start time tell two processes apart. Containers of one machine have one boot id
and numbers of their own each, so a PID namespace that is not the machine's first is named behind it: what happens to
have no such number here is not dead there, and is known by the home's lock file (presence). So is what says another
boot: some containers (systemd-nspawn's) are shown a boot id of their own. Where there is no /proc the pid's existence
is all that can be known, and the start time is 0 on both sides.
"""

from __future__ import annotations

import os
from pathlib import Path

from palyra.model.record import Owner
from palyra.wiring.presence import Presence

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = "/proc/self/ns/pid"
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The kernel's own number for the one that a machine starts with."""


class ProcessOwners:
    def __init__(self, lock: Path | None = None) -> None:
        """`lock`: the home's file by which processes of other PID namespaces know each other."""
        self._lock = lock
        self._boot_id = _read(_BOOT_ID).strip() + _inside(_namespace())
        self._me = self._owner(os.getpid())
        self._presence = self._say()

    def me(self) -> Owner:
        if self._me.pid != os.getpid():  # a fork of ours is somebody else
            self._me = self._owner(os.getpid())
            self._presence = self._say()
        return self._me

    def _say(self) -> Presence | None:
        return None if self._lock is None else Presence(self._lock, self._me)

    def _owner(self, pid: int) -> Owner:
        return Owner(self._boot_id, pid, _start_ticks(pid) or 0)

    def is_alive(self, owner: Owner) -> bool:
        if owner.boot_id != self._boot_id:
            self.me()  # in a fork: what was the parent's is closed
            return self._presence is not None and self._presence.is_said(owner)
        if not self._boot_id:
            return _exists(owner.pid)
        return _start_ticks(owner.pid) == owner.start_ticks

    def is_gone(self, owner: Owner) -> bool:
        return not self.is_alive(owner)


def _namespace() -> int:
    try:
        return os.stat(_NAMESPACE).st_ino
    except OSError:
        return _FIRST_NAMESPACE


def _inside(namespace: int) -> str:
    return "" if namespace == _FIRST_NAMESPACE else f"/{namespace}"


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; the name before it may hold spaces and brackets. A zombie is not alive."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
