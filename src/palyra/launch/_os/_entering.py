"""Linux: a thread that enters PID namespaces, one after the other, and starts something in each.

What a thread enters belongs to it and to what it starts, never to the engine's own. It stays, because starting a thread
takes longer than its work; and between two it is back in the engine's own namespace, so that it holds none that ended.
A thread that cannot get back is not asked again. Whoever asks waits here, the engine's loop too: so all that can fail
is tried before anybody waits, and nobody waits for a thread that another asker has ended.

Not here: what is started (entering), how (_linux).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

_CLONE_NEWPID = 0x20000000
_libc: Any = ctypes.CDLL(None, use_errno=True)
_Answers: TypeAlias = "SimpleQueue[int | BaseException]"
_thread: _Entering | None = None


class _Closed(Exception):
    """Another asker has ended this thread."""


def start_in(namespace: int, start: Callable[[], int]) -> int:
    """`start`, called in a thread whose children are born in this PID namespace."""
    global _thread  # noqa: PLW0603  # one for the process, as threads are
    while True:
        thread = _thread
        if thread is None or not thread.is_ours:
            thread = _thread = _Entering()
        try:
            return thread.start_in(namespace, start)
        except _Closed:
            _thread = None if _thread is thread else _thread
        except BaseException:
            thread.close()
            _thread = None if _thread is thread else _thread
            raise


class _Entering:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._asked: SimpleQueue[tuple[int, Callable[[], int], _Answers] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._is_closed = False
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            threading.Thread(target=self._serve, args=(own,), name="palyra-entering", daemon=True).start()
        except BaseException:
            os.close(own)
            raise

    @property
    def is_ours(self) -> bool:
        """No thread comes along with a fork."""
        return self._pid == os.getpid()

    def start_in(self, namespace: int, start: Callable[[], int]) -> int:
        answers: _Answers = SimpleQueue()
        with self._guard:
            if self._is_closed:
                raise _Closed
            self._asked.put((namespace, start, answers))
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """What was asked before is answered; nothing is taken any more."""
        with self._guard:
            self._is_closed = True
            self._asked.put(None)

    def _serve(self, own: int) -> None:
        try:
            while (asked := self._asked.get()) is not None:
                namespace, start, answers = asked
                try:
                    answers.put(_started(namespace, own, start))
                except BaseException as error:  # noqa: BLE001  # carried over to the asking thread
                    answers.put(error)
        finally:
            os.close(own)


def _started(namespace: int, own: int, start: Callable[[], int]) -> int:
    _enter(namespace)
    try:
        return start()
    finally:
        _enter(own)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWPID):
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
