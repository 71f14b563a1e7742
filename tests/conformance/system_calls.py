"""System calls made by number from inside a sandbox, and what this kernel says to each."""

from __future__ import annotations

from palyra.sandbox import seccomp
from tests.conformance.arena import host


def column(table: dict[str, tuple[int | None, int | None]]) -> dict[str, int]:
    at = list(seccomp.MACHINES).index(host().machine)
    return {name: number for name, numbers in table.items() if (number := numbers[at]) is not None}


CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    return errno.errorcode.get(ctypes.get_errno(), "")
"""
EACH = CALL + "report({name: call(number, 0, 0, 0, 0, 0, 0) for name, number in json.loads(sys.argv[1]).items()})"
"""For numbers by name, as JSON in its first argument."""
