"""Linux: a thread that enters PID namespaces, one after the other, and starts something in each.

What a thread enters belongs to it and to what it starts, never to the engine's own. It stays, because starting a thread
takes longer than its work; and between two it is back in the engine's own namespace, so that it holds none that ended.
A thread that cannot get back ends, and whoever asks next starts another. Whoever asks waits here, the engine's loop
too: so all that can fail is tried before anybody waits, and nobody waits for a thread that another asker has ended.

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
_END_S = 1.0
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


def end_thread() -> None:
    """For an executor that ends; whoever has another and asks again starts another thread."""
    global _thread
    thread, _thread = _thread, None
    if thread is not None and thread.is_ours:
        thread.close()
        thread.wait()


class _Entering:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._asked: SimpleQueue[tuple[int, Callable[[], int], _Answers] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._is_closed = False
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, args=(own,), name="palyra-entering", daemon=True)
        try:
            self._thread.start()
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

    def wait(self) -> None:
        self._thread.join(_END_S)

    def _serve(self, own: int) -> None:
        try:
            while (asked := self._asked.get()) is not None:
                namespace, start, answers = asked
                answer = _started(namespace, start)
                is_back = _is_entered(own)
                if not is_back:
                    self._close_for_good()
                answers.put(answer)
                if not is_back:
                    return
        finally:
            os.close(own)

    def _close_for_good(self) -> None:
        """Whoever asked meanwhile asks another thread."""
        self.close()
        while (asked := self._asked.get()) is not None:
            asked[2].put(_Closed())


def _started(namespace: int, start: Callable[[], int]) -> int | BaseException:
    """What went wrong is carried over to the asking thread."""
    try:
        _enter(namespace)
        return start()
    except BaseException as error:  # noqa: BLE001
        return error


def _is_entered(own: int) -> bool:
    """Not where our own namespace belongs to a user namespace above ours: in there nobody may enter it again."""
    try:
        _enter(own)
    except OSError:
        return False
    return True


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWPID):
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
