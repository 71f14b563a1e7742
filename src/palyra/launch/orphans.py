"""Launchers of sandboxes that nobody waits for any more, with nothing in them: found by what only ours have, and ended.

An engine that is killed in the middle of a launch leaves nothing: its launcher goes on to its end (entering). But a
launcher that is killed itself, by a person, by the kernel for want of memory, or with an engine of an older version,
can leave the half it had just forked: that half waits, before it has run anything of anybody's, for a word that will
not come. And a launcher may be left with nobody inside.

Rules: ours is what runs the very bwrap file of this machine's facts, as this user, with the words that only our
plans have. Left is one that should have a launcher above it and has none, at any age: what was reparented never gets
its launcher back. Or it is a launcher older than an hour that has nobody inside and nobody of Palyra's above it: a
younger one may still be on its way. What cannot be read is left alone. It is judged twice, the second
time behind a pidfd, so that a number that changed hands is nobody's end. Not here: what is told (wiring/gc).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from palyra.launch import _os
from palyra.launch.survivors import command_line, open_exactly, start_ticks
from palyra.launch.waiting import ends_within
from palyra.sandbox.etc_words import is_shortened
from palyra.sandbox.view import EMPTY_FILE

_END_S = 2.0


class Orphan(NamedTuple):
    pid: int
    started_ticks: int


def find_orphans(bwrap: str, *, before_unix_s: float) -> Iterator[Orphan]:
    """`bwrap`: the file that our sandboxes are launched by. `before_unix_s`: before when an empty launcher is old."""
    if not os.path.isdir("/proc/self"):
        return
    for pid, (uid, _, _) in _os.process_ids().items():
        ticks = start_ticks(pid) if uid == os.geteuid() else None
        if ticks is not None and _is_left(pid, bwrap, is_old=_began_unix_s(ticks) < before_unix_s):
            yield Orphan(pid, ticks)


def end_orphan(orphan: Orphan, bwrap: str) -> bool:
    """False when it is there still. One that is not what it was is not touched."""
    fd = open_exactly(orphan.pid, orphan.started_ticks)
    if fd is None:
        return True
    try:
        if _is_left(orphan.pid, bwrap, is_old=True):
            _os.send_signal(fd, signal.SIGKILL)
        return ends_within(fd, _END_S)
    finally:
        os.close(fd)


def _is_left(pid: int, bwrap: str, *, is_old: bool) -> bool:
    try:
        if not _runs(pid, bwrap) or not is_our_command(command_line(pid)) or _os.children(pid):
            return False
        above = _os.parent(pid)
        inside = len(_numbers(pid)) > 1
        if inside and _numbers(pid)[-1] != 1:
            return False  # of somebody's sandbox, and not its first process
        return _has_no_launcher(above, bwrap) if inside else is_old and _has_no_owner(above)
    except (OSError, ValueError, IndexError):
        return False  # gone, or not ours to look at


def is_our_command(line: bytes) -> bool:
    """By what every plan of ours has and nobody else's: the empty file that stands for whatever is hidden, or a folder
    of our state that holds it."""
    words = line.split(b"\0")
    given = words[: words.index(b"--")] if b"--" in words else words
    marks = (at for at, word in enumerate(given) if word == b"--file")
    return any(given[at + 2 : at + 3] == [EMPTY_FILE.encode()] for at in marks) or is_shortened(given)


def _has_no_launcher(above: int, bwrap: str) -> bool:
    """The first process inside is a launcher's child for as long as it is bwrap; whoever else has it inherited it."""
    with contextlib.suppress(PermissionError):
        return not _runs(above, bwrap)
    return above == 1  # it cannot be looked at, and is no launcher of this user's


def _has_no_owner(above: int) -> bool:
    """Where an interpreter is above it, that may be its owner."""
    with contextlib.suppress(PermissionError):
        return not os.path.basename(os.readlink(f"/proc/{above}/exe")).startswith("python")
    return above == 1


def _runs(pid: int, file: str) -> bool:
    return os.path.samestat(os.stat(f"/proc/{pid}/exe"), os.stat(file))


def _numbers(pid: int) -> list[int]:
    """Of a process in each PID namespace it is in, from ours on inwards."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        line = next(line for line in file if line.startswith("NSpid:"))
    return [int(word) for word in line.split()[1:]]


def _began_unix_s(ticks: int) -> float:
    with open("/proc/stat", encoding="ascii") as file:
        boot_s = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")
