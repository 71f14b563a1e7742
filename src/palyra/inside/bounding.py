"""Bounds the number of processes of a sandbox from outside, before anything foreign runs in it.

Started on the host by path as `python3 -I -S bounding.py NAMESPACE_FD COUNT`: a child of it enters the PID namespace
and writes that namespace's own pid_max there. Exit 0: written. Anything else: throw the sandbox away.
"""

import ctypes
import os
import sys

CLONE_NEWPID = 0x20000000
PID_MAX = "/proc/sys/kernel/pid_max"


def write(count: str) -> None:
    """In a process of the namespace: the kernel takes the writer's own."""
    code = 1
    try:
        fd = os.open(PID_MAX, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, count.encode())
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    namespace, count = int(sys.argv[1]), str(int(sys.argv[2]))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), "the sandbox's PID namespace cannot be entered")
    child = os.fork()  # only children are in the namespace
    if child == 0:
        write(count)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError("the sandbox's pid_max cannot be written")


if __name__ == "__main__":
    main()
