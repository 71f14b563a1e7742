"""A fork, as SQLite sees it: the child takes the kernel's locks that it inherits nothing but the memory of.

SQLite remembers in its process which locks it holds, and the kernel gives a fork none of them. So a child believed that
it was connected, and asked the kernel for nothing more. Once its parent had closed the home or had ended, whoever came
next saw nobody, copied the log back and removed it; and the child went on by an index in its memory, beside a log that
others had made anew: both acknowledged entries of the same number. A connection of the child's own shares that memory.

Order: 1 commits and upkeep of other threads end first, and short reads, since a lock that one of them holds would be
remembered for ever · 2 the fork · 3 the child takes the locks · 4 the parent goes on, and may close or end. Where 4
came before 3 all the same (it was killed), the child finds other files than it remembers, or none. What did not end
before 2 (an audit, an export) holds locks that the child remembers and nobody keeps for it: others would begin the log
anew while it reads. Such a child may not use that database any more.

Not here: what else a writer forgets in a child (state/writer).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palyra.errors import StateError

Lock = Any
"""`threading.Lock` and `RLock` are functions, and share no type."""
PATIENCE_S = 5.0
"""For what other threads are at, and in the parent for its child."""
SHORT_S = 0.5
"""A read that is no older may end in a moment: forks wait for it. One that goes on for minutes delays none."""
_SHARED, _SHARED_BYTES = 0x40000002, 510
_CONNECTED = 128
"""SQLite's own places: in the database, whose holders keep its log from being removed; in the log's index, whose
holders keep that from being made anew."""

_opened: set[str] = set()
_lost: set[str] = set()
_waited_for: weakref.WeakValueDictionary[int, Lock] = weakref.WeakValueDictionary()
_in_use: dict[object, tuple[str, int, float]] = {}
"""Databases in which something holds locks from one statement to the next, on which thread, and since when."""


class _Fork:
    """One that is under way, on one thread."""

    def __init__(self) -> None:
        self.held: list[Lock] = []
        self.ends: tuple[int, ...] = ()
        """Of a pipe, on which the child says that it is ready."""
        self.unsettled: set[str] = set(_opened)
        """In which something is under way, as far as is known."""

    def leave(self) -> None:
        for lock in self.held:
            lock.release()
        for fd in self.ends:
            os.close(fd)


_under_way: dict[int, _Fork] = {}


def waited_for(lock: Lock) -> Lock:
    """Nobody forks while another thread holds it."""
    _waited_for[id(lock)] = lock
    return lock


@contextlib.contextmanager
def in_use(database: Path) -> Iterator[None]:
    """While a connection reads more than one statement's worth: who is forked meanwhile may not use it."""
    key = object()
    _in_use[key] = (str(database), threading.get_ident(), time.monotonic())
    try:
        yield
    finally:
        _in_use.pop(key, None)


def note_opened(database: Path) -> None:
    """SQLite may remember locks of it from now on; `StateError` where what it remembers no longer holds."""
    name = str(database)
    if name in _lost:
        raise StateError(
            f"This process was forked from one that was just using {name}, has closed it or ended, and cannot use it.",
            "Start a program of its own instead of a fork (multiprocessing: spawn), or fork when nothing is under way.",
        )
    _opened.add(name)


# ── around a fork ──


def _hold_still() -> None:
    """Ctrl-C may break it off anywhere: what it took by then is given back, and the child relies on nothing."""
    fork = _under_way[threading.get_ident()] = _Fork()
    while _may_end_soon():
        time.sleep(0.005)
    until_s, all_still = time.monotonic() + PATIENCE_S, True
    for lock in [ref() for ref in _waited_for.valuerefs()]:
        if lock is not None and lock.acquire(timeout=max(until_s - time.monotonic(), 0)):
            fork.held.append(lock)
        elif lock is not None:
            all_still = False
    if _opened:
        with contextlib.suppress(OSError):
            fork.ends = os.pipe()
    if all_still:
        fork.unsettled = {name for name, _, _ in tuple(_in_use.values())}


def _may_end_soon() -> bool:
    me, now_s = threading.get_ident(), time.monotonic()
    return any(thread != me and now_s - since_s < SHORT_S for _, thread, since_s in tuple(_in_use.values()))


def _go_on() -> None:
    """In the parent: not before the child can live without it."""
    fork = _under_way.pop(threading.get_ident(), None)
    if fork is None:
        return
    try:
        if fork.ends:
            _wait_for_child(fork)
    finally:  # Ctrl-C meanwhile: nobody would ever commit again
        fork.leave()


def _wait_for_child(fork: _Fork) -> None:
    import select

    reading, writing = fork.ends
    fork.ends = (reading,)
    os.close(writing)  # a fork that failed says nothing, and keeps nobody waiting
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.poll(PATIENCE_S * 1000)


def _take_over() -> None:
    """In the child."""
    fork, others = _under_way.pop(threading.get_ident(), _Fork()), tuple(_under_way.values())
    _under_way.clear()
    _in_use.clear()
    own = _own_files() if _opened else {}
    _lost.update(name for name in _opened if not _holds(name, own, is_settled=name not in fork.unsettled))
    if fork.ends:
        with contextlib.suppress(OSError):
            os.write(fork.ends[1], b".")
    for other in others:  # of the parent's other threads, which are not here
        other.held = []
        other.leave()
    fork.leave()


Files = dict[tuple[int, int], int]


def _own_files() -> Files:
    """By what they are, the descriptors that this process has; SQLite's are among them."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return {}
    own: Files = {}
    for fd in numbers:
        with contextlib.suppress(OSError):  # the listing's own
            own[_identity(os.fstat(fd))] = fd
    return own


def _holds(database: str, own: Files, *, is_settled: bool) -> bool:
    """False where SQLite remembers files that nobody else will find, or locks that nobody will give back."""
    fd = _find(database, own)
    if fd < 0:
        return True  # there is nothing that it could remember of the file that lies there
    if not is_settled or not _share(fd, _SHARED, _SHARED_BYTES):
        return False
    # From here on nobody removes them.
    log, index = _find(f"{database}-wal", own), _find(f"{database}-shm", own)
    return log >= 0 and index >= 0 and _share(index, _CONNECTED, 1)


def _find(name: str, own: Files) -> int:
    try:
        return own.get(_identity(os.stat(name)), -1)
    except OSError:
        return -1


def _share(fd: int, start: int, count: int) -> bool:
    """Whoever holds it alone makes the index or removes the log, and is done in a moment."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, count, start)
        except (BlockingIOError, PermissionError):
            time.sleep(0.005)
        except OSError:
            return False
        else:
            return True
    return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


os.register_at_fork(before=_hold_still, after_in_parent=_go_on, after_in_child=_take_over)
