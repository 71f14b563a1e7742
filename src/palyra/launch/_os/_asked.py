"""A thread that does what it is asked, one thing after another: what it enters passes to all that it starts.

Whoever asks waits, and is given what came of it, an error included. Not here: what such a thread enters (_confine,
_guardian).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class AskedThread:
    def __init__(self, name: str) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        """Not begun: of whom it is born is its maker's affair."""

    def ask(self, work: Callable[[], Any]) -> Any:
        answers: SimpleQueue[Any] = SimpleQueue()  # its own, so that one nobody waited for is never another's
        self._asked.put((work, answers))
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def end(self) -> None:
        """What was asked before is answered."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            work, answers = asked
            try:
                answers.put(work())
            except BaseException as error:  # noqa: BLE001  # carried over to the asking thread
                answers.put(error)


def start_thread(thread: threading.Thread) -> None:
    """Where there is no room for one, Python's own error says neither that nor which number the kernel gave it."""
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no thread can be started: {os.strerror(errno.EAGAIN)}") from error
