"""Opens what lies beneath the workspace and nothing else, whatever names are swapped meanwhile.

Every path is opened relative to one descriptor of the workspace by openat2(RESOLVE_BENEATH): the kernel itself refuses
`..`, absolute links and links that lead out, in the same step that opens the file. Where it has no openat2, components
are walked one by one without following any link. Only regular files and folders are opened, never a FIFO or a device.

`Refused` is the one way a request fails: a code, a sentence, and where. Not here: what is done with the descriptors.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

OPENAT2 = 437
BENEATH = 0x08
NO_MAGIC_LINKS = 0x02
NO_LINKS = 0x04
TRIES = 64
"""The kernel answers EAGAIN when a rename anywhere on the machine kept it from being sure."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Refused(Exception):
    def __init__(self, code: str, message: str, **where: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where


def shown(path: bytes) -> str:
    """For people and JSON: a name may hold any bytes."""
    return path.decode("utf-8", "replace")


def split(path: str, workspace: str) -> tuple[bytes, ...]:
    """The components of a path relative to the workspace, or of an absolute one that names the workspace first."""
    raw = path.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise Refused("BAD_PATH", "The path contains a NUL.")
    if raw.startswith(b"/"):
        root = os.fsencode(workspace).rstrip(b"/")
        if raw != root and not raw.startswith(root + b"/"):
            raise Refused("OUTSIDE_WORKSPACE", f"{shown(raw[:200])} is outside the workspace.", path=path)
        raw = raw[len(root) :]
    parts = tuple(part for part in raw.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise Refused("OUTSIDE_WORKSPACE", f"{shown(raw[:200])} contains `..`, which is not followed.", path=path)
    return parts


def explain(error: OSError, path: bytes) -> Refused:
    name = shown(path[-200:]) or "."
    code, sentence = _MEANING.get(error.errno or 0, ("FAILED", os.strerror(error.errno or 0)))
    return Refused(code, f"{name}: {sentence}.", path=shown(path))


_MEANING = {
    errno.ENOENT: ("NOT_FOUND", "there is nothing of that name"),
    errno.ENOTDIR: ("NOT_A_FOLDER", "a folder is needed where something else is"),
    errno.EISDIR: ("NOT_A_FILE", "it is a folder, not a file"),
    errno.EEXIST: ("EXISTS", "it exists already"),
    errno.EXDEV: ("OUTSIDE_WORKSPACE", "a link on the way leads out of the workspace"),
    errno.ELOOP: ("LINK", "a link on the way is not followed"),
    errno.ENXIO: ("NOT_A_FILE", "it is neither a regular file nor a folder"),
    errno.EACCES: ("NO_PERMISSION", "the workspace's owner may not do that"),
    errno.EPERM: ("NO_PERMISSION", "the workspace's owner may not do that"),
    errno.EROFS: ("PROTECTED", "it is kept read-only"),
    errno.EBUSY: ("PROTECTED", "it is kept as it is"),
    errno.ENOSPC: ("NO_SPACE", "the disk is full"),
    errno.EDQUOT: ("NO_SPACE", "the disk quota is used up"),
    errno.EFBIG: ("TOO_LARGE", "the file is too large"),
    errno.ENAMETOOLONG: ("BAD_PATH", "the path is too long"),
    errno.EINVAL: ("BAD_PATH", "this name cannot be used"),
    errno.EILSEQ: ("BAD_PATH", "this name cannot be used"),
}


def open_beneath(root: int, parts: tuple[bytes, ...], flags: int, *, links: bool) -> int:
    """A descriptor of what lies beneath `root`; `links` that stay beneath it are followed or are errors. OSError."""
    path = b"/".join(parts) or b"."
    flags |= os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    resolve = BENEATH | NO_MAGIC_LINKS | (0 if links else NO_LINKS)
    how = struct.pack("=QQQ", flags, 0, resolve)
    code = errno.EAGAIN
    for _ in range(TRIES):
        fd: int = _libc.syscall(ctypes.c_long(OPENAT2), ctypes.c_int(root), path, how, ctypes.c_size_t(len(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code != errno.EAGAIN:
            break
    if code == errno.ENOSYS:
        return walk(root, parts, flags)
    raise OSError(code, os.strerror(code))


def walk(root: int, parts: tuple[bytes, ...], flags: int) -> int:
    """The same without openat2: component by component, no link followed at all."""
    fd = os.open(b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    if not parts:
        above, fd = fd, os.open(b".", flags | os.O_CLOEXEC, dir_fd=fd)
        os.close(above)
        return fd
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        wanted = flags if last else os.O_PATH | os.O_DIRECTORY
        try:
            above, fd = fd, os.open(part, wanted | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(above)
    return fd


def open_file(root: int, parts: tuple[bytes, ...], *, links: bool = True) -> int:
    """A regular file, for reading. O_NONBLOCK: a FIFO of that name must not hold us."""
    path = b"/".join(parts)
    try:
        fd = open_beneath(root, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, links=links)
    except OSError as error:
        raise explain(error, path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        kind = "a folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "no regular file"
        os.close(fd)
        raise Refused("NOT_A_FILE", f"{shown(path[-200:])} is {kind}.", path=shown(path))
    return fd


def open_folder(root: int, parts: tuple[bytes, ...], *, links: bool = True) -> int:
    try:
        return open_beneath(root, parts, os.O_RDONLY | os.O_DIRECTORY, links=links)
    except OSError as error:
        raise explain(error, b"/".join(parts)) from None


def read_whole(fd: int, most: int) -> bytes | None:
    """The content, or None when there is more than `most`; a file that grows meanwhile is bounded too."""
    chunks = []
    left = most + 1
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 20))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks) if left > 0 else None
