"""Which folder or file a path really is, outside and inside a sandbox: by device and inode, no link followed."""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def identity_of(path: str) -> tuple[int, int]:
    """(device, inode) of a folder or file reached without following any link."""
    fd = os.open(path, _FLAGS)
    try:
        found = os.fstat(fd)
        # The kernel's own name of what was reached: the same path, so no link led elsewhere on the way.
        if os.readlink(f"/proc/self/fd/{fd}") == path and not stat.S_ISLNK(found.st_mode):
            return found.st_dev, found.st_ino
    finally:
        os.close(fd)
    return _walk(path)


def _walk(path: str) -> tuple[int, int]:
    """Where the kernel calls it otherwise: a mount over it, a name that is not plain, or a link."""
    fd = os.open("/", _FLAGS)
    try:
        for part in path.strip("/").split("/"):
            above, fd = fd, os.open(part, _FLAGS, dir_fd=fd)
            os.close(above)
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "a link stands where none was", path)
    return found.st_dev, found.st_ino


def stat_inside(pid: int, path: str) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/root{path}")
    return found.st_dev, found.st_ino
