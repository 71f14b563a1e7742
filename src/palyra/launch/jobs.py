"""Runs our own small programs of `inside/` on the host's side of a sandbox: they enter its namespaces and prepare it.

A process with threads may not enter another's user or mount namespace, so each job is a process of its own. A fresh
interpreter costs more than the whole sandbox; so one, the zygote, is started at the first job and forks for each
(inside/zygote). It ends with this process, with the thread that started it, or with `close`; where it cannot be had
the program is started directly, which does the same.

Rules: a job gets exactly the descriptors that stand among its words, and nothing of ours beside them; it went well
only if it said so itself and is gone. Not here: what jobs do (inside), when they are needed (held).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import weakref
from collections.abc import Sequence

from palyra import inside
from palyra.launch import _os
from palyra.launch.waiting import readable, unbroken

_DONE = b"k"
_END_MS = 2000


class Jobs:
    """One for each executor. Used from the loop's own thread."""

    def __init__(self) -> None:
        self._zygote: _Zygote | None = None

    async def run(self, job: str, words: Sequence[str | int]) -> bool:
        """`python3 -I -S JOB.py WORDS…`, where a number is a descriptor of ours to hand over. True if it went well.

        Not cut short: a job that is half done inside a sandbox would keep that sandbox from ending."""
        said = self._ask_zygote(job, words)
        if said >= 0:
            return await unbroken(_heard(said))
        return await unbroken(ended_well(_start_directly(job, words)))

    @property
    def are_quick(self) -> bool:
        """Whether a job costs a fork rather than a new interpreter."""
        return self._zygote is not None and self._zygote.is_ours

    def get_ready(self) -> None:
        """More jobs will come: start what they are forked from, without waiting for it."""
        if not self.are_quick:
            with contextlib.suppress(OSError):
                self._zygote = _Zygote()

    def close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _ask_zygote(self, job: str, words: Sequence[str | int]) -> int:
        """Where it will say that it is done; -1 where there is no zygote to be had."""
        for _ in range(2):  # one that died is replaced once
            if self._zygote is not None and not self._zygote.is_ours:
                self._zygote = None  # a fork of ours: it is the parent's
            try:
                self._zygote = self._zygote or _Zygote()
                return self._zygote.ask(job, words)
            except BlockingIOError:
                return -1  # busy; waiting would take as long
            except OSError:
                self.close()
        return -1


class _Zygote:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = -1
        try:
            ours.setblocking(False)
            number = _os.raised(os.dup(theirs.fileno()))
            pid = _start("zygote", [str(number), str(os.getpid())], [number])
            pidfd = os.pidfd_open(pid)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if number >= 0:
                os.close(number)
        self._socket = ours
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end_zygote, ours, pid, pidfd, owner=self._owner)

    @property
    def is_ours(self) -> bool:
        return self._owner == os.getpid()

    def ask(self, job: str, words: Sequence[str | int]) -> int:
        fds = [word for word in words if isinstance(word, int)]
        numbers = iter(range(len(fds)))
        spelled = [next(numbers) if isinstance(word, int) else word for word in words]
        request = done = said = -1
        try:
            request = _os.memory_file(json.dumps({"job": job, "words": spelled}).encode())
            said, done = _os.pipe()
            socket.send_fds(self._socket, [b"j"], [request, done, *fds])
        except BaseException:
            if said >= 0:
                os.close(said)
            raise
        finally:
            for fd in (request, done):
                if fd >= 0:
                    os.close(fd)
        return said

    def close(self) -> None:
        self._end()


def _end_zygote(line: socket.socket, pid: int, pidfd: int, *, owner: int) -> None:
    """By pidfd: an embedder that waits for all its children may have reaped this one, and its number be another's."""
    line.close()
    if owner == os.getpid():
        _os.send_signal(pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(_END_MS)
        _os.reap(pid)
    os.close(pidfd)


def _start(job: str, words: Sequence[str], keep: Sequence[int]) -> int:
    program = os.path.join(os.path.dirname(str(inside.__file__)), f"{job}.py")
    argv = [sys.executable or "/usr/bin/python3", "-I", "-S", program, *words]
    null = _os.raised(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    try:
        return _os.spawn(argv, places={0: null, 1: null, 2: null}, keep=keep)
    finally:
        os.close(null)


def _start_directly(job: str, words: Sequence[str | int]) -> int:
    return _start(job, [str(word) for word in words], [word for word in words if isinstance(word, int)])


async def _heard(said: int) -> bool:
    """The end of the file comes when the job's process is gone, whatever it said before."""
    text = b""
    try:
        while True:
            await readable(said)
            chunk = os.read(said, 64)
            if not chunk:
                return text == _DONE
            text += chunk
    finally:
        os.close(said)


async def ended_well(pid: int) -> bool:
    """Wait for a child of ours and reap it."""
    pidfd = os.pidfd_open(pid)
    try:
        await readable(pidfd)
    finally:
        os.close(pidfd)
        ended = _os.reap(pid)
    return ended is not None and not ended[0]
