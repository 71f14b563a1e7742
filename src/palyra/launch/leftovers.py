"""What is left of sandboxes that have ended: their mount namespaces, empty of processes, held open by us alone; our own
launchers, which end by themselves when everything inside has; the threads of plain children's domains, empty too.

The last to let go of a mount namespace makes the kernel take its mounts apart, and waits for it. Left to the sandbox's
first process that is most of what ending a call takes; so the engine holds on until the call is answered, and lets go a
moment later, on a thread that has nothing else to do. Nothing can enter such a namespace but by this descriptor. A
launcher has run nothing but itself; it is reaped at the same moment, and with it our own first process inside, where
everybody else was seen to be gone.

Not here: the end of the programs inside, which is waited for (ending).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from palyra.launch import _os
from palyra.launch.waiting import ends_within, has_ended

if TYPE_CHECKING:
    from palyra.launch._os._confine import Domain

LET_GO_AFTER_S = 0.005
SHORT_S = 0.02
"""In so short a time no program makes more files than the kernel removes in a few milliseconds."""
_END_S = 2.0
Launcher: TypeAlias = tuple[int, int]
"""(pid, pidfd)"""


class Leftovers:
    """One for each executor, used on its loop. Gone when it has `ended`, or with the executor."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._launchers: list[Launcher] = []
        self._domains: list[Domain] = []
        self._timer: asyncio.TimerHandle | None = None
        self._armed_on: asyncio.AbstractEventLoop | None = None
        self._is_expecting = False
        """The time is set already for what will be kept."""
        self._may_be_large = False
        """The kernel may take seconds over what is kept: a program had the time to fill its private folders."""
        self._threads: set[asyncio.Future[None]] = set()
        """At work on what was let go."""
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._fds)
        weakref.finalize(self, _reap_all, self._launchers, owner=self._pid)
        weakref.finalize(self, _end_all, self._domains)

    def keep(
        self,
        *,
        fds: Sequence[int] = (),
        launcher: Launcher = (0, -1),
        domain: Domain | None = None,
        ran_s: float = 0.0,
    ) -> None:
        """Of a sandbox that is gone, whose program ran for that long."""
        self._leave_to_parent()
        self._fds += fds
        self._may_be_large = self._may_be_large or (ran_s > SHORT_S and bool(fds))
        if launcher[0]:
            self._launchers.append(launcher)
        if domain is not None:
            self._domains.append(domain)
        if not self._is_expecting or self._armed_on is not asyncio.get_running_loop():
            self._arm()
        self._is_expecting = False

    def expect(self) -> None:
        """Something is about to be kept: its time is set now, when nobody waits for us."""
        self._arm()
        self._is_expecting = True

    def _leave_to_parent(self) -> None:
        if self._pid != os.getpid():  # a fork: what is in the lists is its copy of the parent's
            _close_all(self._fds)
            _close_all([fd for _, fd in self._launchers])
            del self._launchers[:], self._domains[:]  # no thread comes along with a fork
            self._pid, self._timer, self._threads = os.getpid(), None, set()
            self._is_expecting = self._may_be_large = False

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timer if self._armed_on is loop else None  # another loop may have ended before its time
        if timer is None or timer.cancelled() or timer.when() < loop.time():
            self._armed_on = loop
            # Weakly: an executor that nobody closes is dropped with its last user, and what it kept with it.
            self._timer = loop.call_later(LET_GO_AFTER_S, _let_go_in_time, weakref.ref(self), loop)

    def let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._is_expecting = None, False
        _end_all(self._domains)
        if not self._fds and not self._launchers:
            return
        fds, launchers = self._fds[:], self._launchers[:]
        del self._fds[:], self._launchers[:]
        self._may_be_large = False
        try:
            thread = loop.run_in_executor(None, _let_go_of, fds, launchers)
            self._threads.add(thread)
            thread.add_done_callback(self._threads.discard)
        except (RuntimeError, OSError):  # the loop is about to end, or there is no thread or descriptor to be had
            _let_go_of(fds, launchers)

    def let_go_here(self) -> None:
        """In this thread, which has nothing to do but wait: cheaper than another thread, which would want to run just
        when this one goes on. Not where a program may have left a million files in its private folders: every caller
        would wait while the kernel removes them."""
        if self._may_be_large or self._pid != os.getpid():
            return
        if all(has_ended(pidfd) for _, pidfd in self._launchers):
            self.close()

    async def ended(self) -> None:
        """What is with a thread already is waited for, too."""
        self.close()
        loop = asyncio.get_running_loop()
        if own := [thread for thread in self._threads if thread.get_loop() is loop]:
            await asyncio.wait(own)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._is_expecting = None, False
        _end_all(self._domains)
        _let_go_of(self._fds, self._launchers)
        self._may_be_large = False


def _let_go_in_time(kept: weakref.ref[Leftovers], loop: asyncio.AbstractEventLoop) -> None:
    if (leftovers := kept()) is not None:
        leftovers.let_go(loop)


def _let_go_of(fds: list[int], launchers: list[Launcher]) -> None:
    if launchers:
        _reap_all(launchers, owner=os.getpid())
    _close_all(fds)


def _reap_all(launchers: list[Launcher], *, owner: int) -> None:
    while launchers:
        pid, pidfd = launchers.pop()
        if owner == os.getpid():
            if not ends_within(pidfd, _END_S):
                _os.send_signal(pidfd, signal.SIGKILL)
                ends_within(pidfd, _END_S)
            _os.reap_by_descriptor(pidfd, pid)
        os.close(pidfd)


def _end_all(domains: list[Domain]) -> None:
    while domains:
        domains.pop().close()


def _close_all(fds: list[int]) -> None:
    while fds:
        with contextlib.suppress(OSError):
            os.close(fds.pop())
