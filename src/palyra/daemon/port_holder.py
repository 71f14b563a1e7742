"""Names who listens on a TCP port of this machine, and a free port near it, for the message that it is taken."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_LISTENS = "0A"
_TRIED = 32
_LOOKS = 3
"""The kernel's table may leave a socket out while others come and go."""


def find_free_port(family: int, host: str, port: int) -> int | None:
    """Return the next port that can be bound now, or None where the next few are all taken."""
    for candidate in range(port + 1, min(port + 1 + _TRIED, 65536)):
        with socket.socket(family, socket.SOCK_STREAM) as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, candidate))
            return candidate
    return None


def describe_holder(port: int) -> str:
    """Return `process 812, palyra serve`, or an empty string where /proc does not tell this user."""
    try:
        looks = (_listening(table, port) for _ in range(_LOOKS) for table in ("tcp", "tcp6"))
        inodes = {f"socket:[{inode}]" for inode in next(filter(None, looks), [])}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):  # another user's, or gone
                if _has_open(f"/proc/{pid}/fd", inodes):
                    return f"process {pid}, {_name(pid)}"
    except OSError:
        pass
    return ""


def _has_open(folder: str, inodes: set[str]) -> bool:
    for fd in os.listdir(folder):
        with suppress(FileNotFoundError):  # closed meanwhile, as the one that listed this folder
            if os.readlink(f"{folder}/{fd}") in inodes:
                return True
    return False


def _listening(table: str, port: int) -> list[str]:
    try:
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except FileNotFoundError:  # no IPv6
        return []
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]


def _name(pid: str) -> str:
    """The program's name alone: any other word of its command line may be a secret."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = [os.path.basename(word) for word in file.read(4096).decode("utf-8", "replace").split("\0")]
    return "palyra serve" if {"palyra", "palyrad"} & set(words[:3]) else words[0] or "a program without a name"
