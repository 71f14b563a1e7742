"""Touches: a Unix socket's other end, and the folder it lies in. Is whoever answers there somebody we may believe?

A socket's path outlives its daemon: after a crash or a restart of the machine anybody who may write the folder can
listen under that name, be sent tokens, inputs and stdin, and answer for policies. Rules: the kernel says who is at
the other end; believed are this user, root, the home's owner, else only who alone may put a socket into that folder. A
program in a sandbox has its owner's uid, and listens where a socket stands in its workspace: nobody in a PID namespace
below ours is believed.

Not here: whom the daemon believes (daemon/wire_guard), the hook's own check (cli/hook_entry).
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct

SO_PEERPIDFD = 77
_UCRED, _FD = struct.Struct("3i"), struct.Struct("i")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def uid_of(line: socket.socket) -> int | None:
    """Of the other end; None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    _, uid, _ = _UCRED.unpack(line.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))
    return int(uid)


def is_beside_us(line: socket.socket) -> bool:
    """Whether the other end is a process as we are, and none in a sandbox; False also for one that is gone. One that we
    cannot see at all, from within a container, is no child of ours: it stands beside or above."""
    pid, _, _ = _UCRED.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return depth_of_peer(line, pid) == depth_of("/proc/self/status") >= 0 if pid else True


def depth_of_peer(line: socket.socket, pid: int) -> int:
    """By a descriptor of the very process that connected or listens, where the kernel gives one (Linux 6.5): one that
    does and goes could wait until its number is a process's outside."""
    try:
        (pidfd,) = _FD.unpack(line.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, _FD.size))
    except OSError as error:
        return depth_of(f"/proc/{pid}/status") if error.errno == errno.ENOPROTOOPT else -1
    try:
        return depth_of(f"/proc/self/fdinfo/{pidfd}")
    finally:
        os.close(pidfd)


def depth_of(place: str) -> int:
    """How many PID namespaces deep a process is, seen from here; -1 for one that is gone or that we cannot see."""
    try:
        with open(place, "rb") as file:
            words = next((line.split() for line in file if line.startswith(b"NSpid:")), [b"NSpid:"])
    except OSError:
        return -1
    return -1 if words[1:2] == [b"-1"] else len(words) - 1


def is_believed(line: socket.socket, path: str, *, owner_uid: int | None = None) -> bool:
    """`owner_uid`: of the home whose daemon is to be there; None where only the socket's path is known."""
    uid = uid_of(line)
    if uid is None:
        return True
    if not is_beside_us(line):
        return False
    if uid in (0, os.geteuid(), owner_uid):
        return True
    return owner_uid is None and _is_its_own(os.path.dirname(os.path.realpath(path)), uid)


def _is_its_own(folder: str, uid: int) -> bool:
    """Whether nobody but this user and root puts a socket there, or another folder in its place."""
    is_sticky_enough = False  # in a folder like /tmp anybody may put one; a folder that lies there stays its owner's
    while True:
        try:
            owner, mode = _owner_and_mode(folder)
        except OSError:
            return False
        is_shared = bool(mode & _OTHERS_WRITE) and not (is_sticky_enough and mode & stat.S_ISVTX)
        if owner not in (0, uid) or is_shared:
            return False
        above = os.path.dirname(folder)
        if above == folder:
            return True
        folder, is_sticky_enough = above, True


def _owner_and_mode(folder: str) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_uid, found.st_mode
