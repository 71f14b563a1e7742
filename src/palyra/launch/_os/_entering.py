"""Linux: a thread that enters PID namespaces, one after the other, and starts something in each.

What a thread enters belongs to it and to what it starts, never to the engine's own. It stays, because starting a thread
takes longer than its work; and between two it is back in the engine's own namespace, so that it holds none that ended.
A thread that cannot get back is not asked again.

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


def start_in(namespace: int, start: Callable[[], int]) -> int:
    """`start`, called in a thread whose children are born in this PID namespace."""
    global _thread  # noqa: PLW0603  # one for the process, as threads are
    if _thread is None or not _thread.is_ours:
        _thread = _Entering()
    try:
        return _thread.start_in(namespace, start)
    except BaseException:
        _thread.close()
        _thread = None
        raise


class _Entering:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._asked: SimpleQueue[tuple[int, Callable[[], int], _Answers] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="palyra-entering", daemon=True).start()

    @property
    def is_ours(self) -> bool:
        """No thread comes along with a fork."""
        return self._pid == os.getpid()

    def start_in(self, namespace: int, start: Callable[[], int]) -> int:
        answers: _Answers = SimpleQueue()
        self._asked.put((namespace, start, answers))
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        self._asked.put(None)

    def _serve(self) -> None:
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
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
