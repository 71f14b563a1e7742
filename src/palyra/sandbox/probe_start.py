"""Does our own start program run on this machine? Tried with a real one, once; then remembered with the other findings.

Older kernels lack a call it needs, some systems run nothing from a file without a name, and some machines it is not
made for: there a shell is held instead, which does the same more slowly.

Touches: short-lived children. Not here: the program (starter), what it is told (start_message).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from palyra.sandbox.start_message import start_message
from palyra.sandbox.starter import CONTROL, MACHINES, READY, assemble

_TIMEOUT_S = 10.0
_ANSWER = 7


def try_starter(machine: str, shell: str) -> bool:
    if machine not in MACHINES or not shell:
        return False
    try:
        with contextlib.ExitStack() as stack:
            fd = memory_file(assemble(machine, first=False), stack)
            argv, fds = told_to_become([f"/proc/self/fd/{fd}"], shell, ["-c", f"exit {_ANSWER}"], "/", stack)
            given: dict[str, Any] = {"env": {}, "pass_fds": [fd, *fds], "timeout": _TIMEOUT_S}
            done = subprocess.run(argv, check=False, capture_output=True, **given)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return done.returncode == _ANSWER


def memory_file(data: bytes, stack: contextlib.ExitStack) -> int:
    fd = raised(os.memfd_create("palyra-probe", os.MFD_CLOEXEC), stack)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def raised(fd: int, stack: contextlib.ExitStack) -> int:
    """Under a number that the start program does not use for something else."""
    above = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, CONTROL + 1)
    os.close(fd)
    stack.callback(os.close, above)
    return above


def told_to_become(
    launcher: Sequence[str], shell: str, arguments: Sequence[str], cwd: str, stack: contextlib.ExitStack
) -> tuple[list[str], list[int]]:
    """(argv, descriptors to pass) of a launcher that ends in the start program, with its message on the way."""
    message = start_message(
        program=shell, arguments=arguments, env=(), cwd=cwd, limits=(), nonce=b"not started", limit_first=False
    )
    read, write = os.pipe()
    read = raised(read, stack)
    try:
        os.write(write, message)  # less than a pipe holds
    finally:
        os.close(write)
    null = raised(os.open(os.devnull, os.O_WRONLY), stack)
    places = f'exec "$@" {CONTROL}</proc/self/fd/{read} {READY}>/proc/self/fd/{null}'
    return [shell, "-c", places, "sh", *launcher], [read, null]
