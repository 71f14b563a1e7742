"""The kernel's reader of a system call filter, as far as ours use it: so both machines are checked anywhere."""

from __future__ import annotations

import struct


def simulate(program: bytes, *, arch: int, nr: int, args: tuple[int, ...] = ()) -> int:
    """One `struct seccomp_data` through the filter; returns the verdict."""
    padded = (*args, *(0,) * (6 - len(args)))
    data = struct.pack("=IIQ6Q", nr, arch, 0, *padded)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("=I", data, value)[0]
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")
