"""Which folder or file a path really is, outside and inside a sandbox: by device and inode, no link followed."""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def identity_of(path: str) -> tuple[int, int]:
    """(device, inode) of a folder or file reached without following any link.

    Step by step: one open of the whole path follows links on the way, and the kernel's own name of what was reached
    does not tell. A link into another mount namespace (/proc/PID/root) leads to a foreign place of the very same name.
    """
    first, *parts = path.strip("/").split("/")
    fd = os.open(f"/{first}", _FLAGS)
    try:
        for part in parts:
            above, fd = fd, os.open(part, _FLAGS, dir_fd=fd)
            os.close(above)
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "there is a link where there was none", path)
    return found.st_dev, found.st_ino


def granted_identity(path: str) -> tuple[int, int]:
    """The same of a folder that was granted under a path without links. An agent whose workspace holds it can put a
    link in its place, to the operator's keys: whoever was granted the folder would be shown those."""
    try:
        return identity_of(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(errno.ELOOP, "a link has taken the place of what was granted", path) from error
        raise


def stat_inside(pid: int, path: str) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/root{path}")
    return found.st_dev, found.st_ino
