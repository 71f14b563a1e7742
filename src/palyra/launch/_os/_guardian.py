"""Linux: who ends plain children when this process is killed: a shell that can signal all of them, and nobody else.

A sandbox with a PID namespace dies with whoever started it. A plain child does not: an engine that is killed (kill -9,
no memory left) would leave it running for good, past every deadline; no row tells of a call's child, and a double fork
leaves the session by which what a background process started is found.

So every thread that confines itself is born of one thread here, which is in a Landlock domain of its own that refuses
nothing but signals to the outside. The shell, started by that thread, is in the same domain. All that plain children
ever start is in domains below it: none of them can signal or trace the shell, and its `kill -1` reaches exactly all of
them. It waits on a line to this process: at a word on it, it leaves; at its end, it kills. Before it waits it makes
sure that it cannot signal this process: a shell in no domain would kill everyone on the machine.

One for the process, from the first plain child on, until an executor ends and no plain child is left. Where Landlock
scopes no signals, or there is no room for another process, there is none: what a killed engine leaves, stays. Not
here: what a plain child may do (_confine), the end of one whose engine lives (ending).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from palyra.launch._os._asked import AskedThread, start_thread
from palyra.values import dataclass

SCRIPT = 'kill -0 "$PPID" 2>/dev/null && exit 1; read -r word && exit 0; kill -KILL -1'
_END_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What the system is asked for."""

    enter: Callable[[], None]
    """Into a domain that refuses this thread nothing but signals to the outside."""
    spawn: Callable[[int], int]
    """The shell, with this descriptor as its stdin; its pid."""
    reap: Callable[[int], object]
    """Collect this child, if it has ended."""


class _State:
    def __init__(self) -> None:
        self.lock = threading.RLock()  # what handles a signal may start something, too
        self.guardian: _Guardian | None = None


_state = _State()


def start_guarded(thread: threading.Thread, hands: Hands) -> Callable[[], None]:
    """Start a thread whose children are guarded, if they can be; what is to be called when all of them are gone."""
    with _state.lock:
        guardian = _at_work(hands)
        if guardian is None:
            start_thread(thread)
            return lambda: None
        guardian.ask(lambda: start_thread(thread))
        return guardian.guard(thread)


def end_guardian() -> None:
    """For an executor that ends; what others of this process have started stays guarded."""
    with _state.lock:
        guardian = _state.guardian
        if guardian is not None and not guardian.guarded:
            _state.guardian = None
            guardian.leave()


def _at_work(hands: Hands) -> _Guardian | None:
    with contextlib.suppress(OSError):
        if _state.guardian is None:
            _state.guardian = _Guardian(hands)
        _state.guardian.watch()
        return _state.guardian
    return None


class _Guardian:
    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._asked = AskedThread("palyra-guardian")
        self._shell = 0
        self.line: socket.socket | None = None
        self.guarded: set[threading.Thread] = set()
        start_thread(self._asked.thread)
        try:
            self.ask(hands.enter)
        except BaseException:
            self._asked.end()
            raise

    def watch(self) -> None:
        """See to it that the shell is there: anybody may have killed it."""
        if self.line is not None and not _is_told(self.line.fileno(), 0.0):
            return
        if self._shell:
            self._hands.reap(self._shell)
        ours, theirs = socket.socketpair()
        try:
            self._shell = self.ask(lambda: self._hands.spawn(theirs.fileno()))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        if self.line is not None:
            self.line.close()
        self.line = ours

    def ask(self, work: Callable[[], Any]) -> Any:
        return self._asked.ask(work)

    def guard(self, thread: threading.Thread) -> Callable[[], None]:
        """What is returned waits for no lock: the collector may close a domain in any thread, also in the one here
        while somebody who has the lock waits for its answer."""
        self.guarded.add(thread)
        return lambda: self.guarded.discard(thread)

    def leave(self) -> None:
        self._asked.end()
        if self.line is not None:
            with self.line as line, contextlib.suppress(OSError):
                line.send(b"\n", socket.MSG_NOSIGNAL)  # an embedder may have SIGPIPE end it
                self._collect()

    def _collect(self) -> None:
        pidfd = os.pidfd_open(self._shell)
        try:
            _is_told(pidfd, _END_S)
        finally:
            os.close(pidfd)
        self._hands.reap(self._shell)


def _is_told(fd: int, timeout_s: float) -> bool:
    """Whether there is an end, of a process or of a line on which nobody says anything."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _after_fork() -> None:
    """Neither a thread nor a child comes along; and as long as a fork held the line, the shell would not learn that
    this process was killed."""
    global _state  # its lock may be held by a thread that is not here
    before, _state = _state, _State()
    if before.guardian is not None and before.guardian.line is not None:
        before.guardian.line.close()


os.register_at_fork(after_in_child=_after_fork)
