"""Closes parts of a workspace inside a finished sandbox, from outside, before anything has run in it.

Started on the host by path as `python3 -I -S closing.py USER_FD MOUNT_FD JSON`: enters the sandbox's namespaces, parts
its mounts from the host's, so that nothing mounted there later appears inside, then for each [kind, path] mounts over
it by descriptor. A launcher that mounts by name can be led outside by a program that
swaps names meanwhile, and creates or truncates what it finds there; here every path is walked without following a
link, and what is mounted over is the very file or folder that was reached. Exit 0: all closed. Anything else: throw the
sandbox away.

Kinds: `sealed` is a mount that becomes read-only as it is; `parent` stays writable but can no longer be renamed;
`protected` is read-only; `link` is a link, not what it leads to, that can no longer be replaced, where the kernel lets
that be; `hidden_file` and `hidden_folder` show the empty file and folder that the launcher put under /etc; `copied` is
a file of which the program has a copy in the sandbox's own memory, and a link to it in the file's place. A program that
writes such a file anew beside it, and renames it over the old one, as git does with its settings, follows the link
first: it gets its way with the copy, the name stays a mount that nobody can rename or remove, and the host's file stays
as it is. Copied is only what the program itself may read: an agent can move a file of somebody else's to that name.
Where it may not, or the kernel mounts no link, the file is protected like any other.
"""

import ctypes
import errno
import json
import os
import stat
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_EMPTY_PATH, OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 0x1000, 1, 0o2000000
WITH_ALL_BELOW = 0x8000
"""AT_RECURSIVE"""
BOTH_BY_DESCRIPTOR = 0x4 | 0x40
READ_ONLY, NO_SUID, NO_DEVICES = 0x1, 0x2, 0x4
ALL_PRIVATE = 0x4000 | 0x40000
"""MS_REC | MS_PRIVATE"""
EMPTY_FILE, EMPTY_FOLDER = "/etc/.palyra-empty", "/etc/.palyra-empty.d"
HOME, COPIES = "/home/agent", "/home/agent/.palyra-copies"
MAX_COPIED_BYTES = 1 << 20
"""Of all together: it is memory that the engine answers for, and a program may have made hundreds of such files."""
CAPABILITIES_VERSION = 0x20080522
copied: list[int] = []
"""How many bytes of each."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number: int, *arguments: object) -> int:
    result: int = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)} (system call {number})")
    return result


def enter(user: int, mount: int) -> None:
    """Root enters the mounts as root; anyone else through the user namespace that owns them, and is its root there."""
    if not libc.setns(mount, CLONE_NEWNS):
        return
    if ctypes.get_errno() != errno.EPERM or libc.setns(user, CLONE_NEWUSER) or libc.setns(mount, CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "the sandbox's namespaces cannot be entered")


def part() -> None:
    """A launcher leaves the mounts bound to the host's: what is mounted there later would come along, writable."""
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(ALL_PRIVATE), None):
        raise OSError(ctypes.get_errno(), "the sandbox's mounts cannot be made its own")


def walk(path: str, *, to_link: bool = False) -> int:
    """A descriptor of what the path names, no link followed on the way nor at its end."""
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for part in os.fsencode(path).strip(b"/").split(b"/"):
        above, fd = fd, os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        os.close(above)
    if stat.S_ISLNK(os.fstat(fd).st_mode) != to_link:
        raise OSError("there is a link where there was none, or none where there was one")
    return fd


def restrict(mount: int, bits: int, how: int = AT_EMPTY_PATH) -> None:
    attributes = bits.to_bytes(8, sys.byteorder) + bytes(24)
    call(MOUNT_SETATTR, ctypes.c_int(mount), b"", ctypes.c_uint(how), attributes, ctypes.c_size_t(32))


def cover(target: int, source: int, *, read_only: bool) -> None:
    """A volume that the host has mounted below comes along: the kernel clones no folder without what lies over it."""
    how = AT_EMPTY_PATH | WITH_ALL_BELOW
    tree = call(OPEN_TREE, ctypes.c_int(source), b"", ctypes.c_uint(how | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC))
    restrict(tree, NO_SUID | NO_DEVICES | (READ_ONLY if read_only else 0), how)
    call(MOVE_MOUNT, ctypes.c_int(tree), b"", ctypes.c_int(target), b"", ctypes.c_uint(BOTH_BY_DESCRIPTOR))
    os.close(tree)


def read(path: str, target: int, most: int) -> bytes:
    """Of the very file that was reached."""
    folder, _, name = path.rpartition("/")
    fds = [walk(folder)]
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fds.append(os.open(os.fsencode(name), flags, dir_fd=fds[0]))
        found, was = os.fstat(fds[1]), os.fstat(target)
        if (found.st_dev, found.st_ino) != (was.st_dev, was.st_ino) or not stat.S_ISREG(found.st_mode):
            raise OSError("there is another file where there was one")
        data = os.read(fds[1], most + 1)
    finally:
        for fd in fds:
            os.close(fd)
    if len(data) > most:
        raise OSError("more than is copied")
    return data


def copy(data: bytes) -> int:
    """A link to a file of the sandbox's own with these bytes."""
    place = f"{COPIES}/{len(copied)}"
    copied.append(len(data))
    os.makedirs(place, 0o700)
    fd = os.open(f"{place}/config", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, data) < len(data):
            raise OSError("the sandbox has no room for a copy")
    finally:
        os.close(fd)
    os.symlink(f"{place}/config", f"{place}/link")
    return os.open(f"{place}/link", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def copy_as_program(path: str, target: int) -> int:
    """With the rights of the sandbox's own user and no others: read with those of root, a copy would show the program a
    file that it may not open. And as root outside we have no name in there."""
    owner = os.stat(HOME)
    header = CAPABILITIES_VERSION.to_bytes(4, sys.byteorder) + bytes(4)
    held = ctypes.create_string_buffer(24)  # twice: effective, permitted, inheritable
    libc.capget(header, held)
    if owner.st_uid != os.geteuid():
        os.setgroups([])
    libc.setfsgid(owner.st_gid)
    libc.setfsuid(owner.st_uid)
    try:
        if libc.capset(header, b"".join(bytes(4) + held.raw[at : at + 8] for at in (4, 16))):
            raise OSError(ctypes.get_errno(), "rights cannot be laid down")
        return copy(read(path, target, MAX_COPIED_BYTES - sum(copied)))
    finally:
        libc.capset(header, held)
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


def cover_by_copy(target: int, path: str) -> None:
    try:
        link = copy_as_program(path, target)
        try:
            cover(target, link, read_only=True)
        finally:
            os.close(link)
    except OSError:
        cover(target, target, read_only=True)


def cover_link(target: int) -> None:
    try:
        cover(target, target, read_only=True)
    except OSError:
        return  # it stays as it is, and what takes its place is told after the call


def close(kind: str, path: str) -> None:
    target = walk(path, to_link=kind == "link")
    if kind == "link":
        cover_link(target)
    elif kind == "sealed":
        restrict(target, READ_ONLY)
    elif kind == "copied":
        cover_by_copy(target, path)
    elif kind in ("parent", "protected"):
        cover(target, target, read_only=kind == "protected")
    else:
        cover(target, walk(EMPTY_FILE if kind == "hidden_file" else EMPTY_FOLDER), read_only=True)
    os.close(target)


def main() -> None:
    user, mount, given = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    enter(user, mount)
    part()
    for kind, path in given:
        close(kind, path.encode("latin-1").decode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
