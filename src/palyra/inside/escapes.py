"""The escape attempts of `palyra doctor --prove`, made from within the exact sandbox that calls get.

Started by path as `python3 -I -S escapes.py JSON`; prints one JSON object: attempt → "held" or what was possible. It
harms nothing: what it writes is empty, what it reads is thrown away, and it reaches for loopback alone.

Not here: which guarantee each attempt stands for (sandbox/proof), limits and survivors (they need a run of their own).
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HELD = "held"


def refused(attempt: Callable[..., object], *arguments: object) -> str:
    """Held when the attempt raises; otherwise what it gave."""
    try:
        got = attempt(*arguments)
    except (OSError, ValueError):
        return HELD
    return f"possible: {str(got)[:80]}"


def read(path: str) -> object:
    with open(path, "rb") as file:
        return file.read(64) or "empty"


def write(path: str) -> object:
    """Opened for writing, nothing written; what that made is taken away again."""
    is_new = not os.path.lexists(path)
    with open(path, "ab"):
        pass
    if is_new:
        os.unlink(path)
    return path


def connect(family: int, kind: int, address: Any) -> object:
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        sock.connect(address)
        return address


def system_call(number: int, *arguments: int) -> object:
    """The errno of a raw call: one that is refused by the filter says EPERM, ENOSYS or EAFNOSUPPORT."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments)) >= 0:
        return f"system call {number} went through"
    code = ctypes.get_errno()
    if code in (1, 38, 97):
        raise OSError(code, "refused")
    return f"system call {number} was not refused, errno {code}"


def none_of(attempt: Callable[[str], object], items: Sequence[str]) -> str:
    bad = [item for item in items if refused(attempt, item) != HELD]
    return HELD if not bad else f"possible: {bad[:5]}"


def open_descriptors() -> str:
    mine = sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))
    extra = [fd for fd in mine if fd > 2]
    return HELD if not extra else f"possible: descriptors {extra}"


def environment_of_first() -> str:
    try:
        with open("/proc/1/environ", "rb") as file:
            names = {entry.partition(b"=")[0] for entry in file.read().split(b"\0") if entry}
    except OSError:
        return HELD
    # The launcher itself sets where it starts, for whatever it becomes.
    return HELD if names <= {b"PWD"} else "possible: the launcher's environment is readable"


def interfaces() -> str:
    try:
        names = sorted(name for _, name in socket.if_nameindex())
    except OSError:
        return HELD  # netlink is refused, so there is nothing to list
    return HELD if set(names) <= {"lo"} else f"possible: {names}"


def netlink_socket(protocol: str) -> object:
    """Protocol 0 lists interfaces and is allowed; every other is refused."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, int(protocol)):
        return protocol


def change_interface() -> object:
    """One that does not exist, so that a privileged process harms nothing; the kernel looks at privileges first."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(struct.pack("=IHHIIBxHiII", 32, 16, 0x5, 1, 0, 0, 0, 0x7FFFFFF0, 0, 1))
        code = -struct.unpack_from("=i", netlink.recv(4096), 16)[0]
    if code in (errno.EPERM, errno.EACCES):
        raise OSError(code, "refused")
    return f"the request was not refused, errno {code}"


def attempts(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    machine = os.uname().machine
    numbers = {"x86_64": (101, 272, 165, 425, 321, 250), "aarch64": (117, 97, 40, 425, 280, 219)}.get(machine, ())
    yield "read a secret outside", refused(read, given["secret"])
    yield "read it through /proc/1/root", refused(read, "/proc/1/root" + given["secret"])
    yield "list the state folder", refused(os.listdir, given["state_home"])
    yield "list the home folder", refused(os.listdir, given["home"])
    yield "read the shadow file", refused(read, "/etc/shadow")
    yield "read the launcher's environment", environment_of_first()
    yield "write beside the workspace", refused(write, os.path.join(os.path.dirname(given["secret"]), "new"))
    folders = ("/", "/usr", "/etc", "/dev", "/bin", "/var", "/home", "/proc/sys/kernel")
    yield "write into the system", none_of(write, [os.path.join(folder, "palyra-new") for folder in folders])
    yield "write kernel settings", none_of(write, ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"])
    yield "plant a hook", refused(write, ".git/hooks/pre-commit")
    yield "rename a protected folder away", refused(os.rename, ".git", "moved")
    yield "find inherited descriptors", open_descriptors()
    yield (
        "reach a port of this machine",
        refused(connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["port"])),
    )
    yield "reach an abstract socket", refused(connect, socket.AF_UNIX, socket.SOCK_STREAM, "\0" + given["abstract"])
    yield "reach an outside address", refused(connect, socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))
    yield "see an interface", interfaces()
    yield "change an interface", refused(change_interface)
    for name, number in zip(("ptrace", "unshare", "mount", "io_uring", "bpf", "keyctl"), numbers, strict=False):
        first = 0x10000000 if name == "unshare" else 0
        yield f"call {name}", refused(system_call, number, first, 0, 0, 0, 0)
    yield "open a netlink socket", none_of(netlink_socket, [str(protocol) for protocol in range(1, 32)])


def main() -> None:
    given = json.loads(sys.argv[1])
    print(json.dumps(dict(attempts(given))))


if __name__ == "__main__":
    main()
