"""Keepers in tests: who keeps a home, what runs on this machine, and waiting for what others do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def keepers_of(home: Path) -> list[int]:
    """Living keepers of a home, by their command lines."""
    return [pid for pid in processes_with(str(home)) if b"palyra.wiring.keeper" in command_line(pid)]


def processes_with(mark: str) -> list[int]:
    """Living processes of this machine whose command line holds `mark`, ourselves aside."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in found if mark.encode() in command_line(pid)]


def running(*words: str) -> list[int]:
    """Living processes that are this very program, and not somebody who was told to start it."""
    wanted = [word.encode() for word in words]
    lines = ((pid, command_line(pid).split(b"\0")[:-1]) for pid in processes_with("\0".join(words)))
    return [pid for pid, line in lines if line and [os.path.basename(line[0]), *line[1:]] == wanted]


def command_line(pid: int) -> bytes:
    """Empty for one that is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for(look: Callable[[], T], *, seconds: float = 30) -> T:
    """Until what `look` finds is true."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found or time.monotonic() > deadline:
            assert found, "it never came to be"
            return found
        time.sleep(0.02)


@contextmanager
def kept_home(home: Path) -> Iterator[Path]:
    """Whatever a test does, no keeper and nothing that it keeps outlives it."""
    try:
        yield home
    finally:
        for pid in keepers_of(home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not keepers_of(home))
