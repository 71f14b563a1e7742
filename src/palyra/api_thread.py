"""The sync face's one thread: an event loop that lives as long as its `Palyra`, waited for from any other thread.

Rules: the thread is permanent, because a sandbox dies with the thread that started it; Ctrl-C in a waiting thread ends
the call and closes its record first; after a fork, when it was stopped, and to itself it says so instead of waiting for
ever.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from palyra.errors import PalyraError
from palyra.loops import new_loop

T = TypeVar("T")
FINISH_S = 60.0
"""How long an interrupted call may take to end its program and close its record."""


class LoopThread:
    """One permanent thread with an event loop; coroutines are handed to it and waited for."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._run, name="palyra", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        self._check(work)
        if threading.current_thread() is self._thread:  # it would wait for itself
            work.close()
            error = PalyraError("A callback on Palyra's own thread (on_output) cannot wait for a call.")
            error.advise("Start the call with run.submit, or pass the output to a thread of your own.")
            raise error
        finished = threading.Event()
        future = asyncio.run_coroutine_threadsafe(self._finish(work, finished), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():  # Ctrl-C in the caller's thread: the call ends, and its record is closed first
                future.cancel()
                finished.wait(FINISH_S)
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin it and do not wait; cancelling the future ends the call, and its record is closed."""
        self._check(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _finish(self, work: Coroutine[Any, Any, T], finished: threading.Event) -> T:
        try:
            return await work
        finally:
            finished.set()

    def _check(self, work: Coroutine[Any, Any, T]) -> None:
        """A fork has no such thread, and after `stop` there is none: say so instead of waiting for ever."""
        if self._pid != os.getpid() or not self._thread.is_alive():
            work.close()
            why = "it was opened before a fork" if self._pid != os.getpid() else "it is closed"
            raise PalyraError(f"This Palyra cannot be used: {why}. Open another.")

    def stop(self) -> None:
        if self._pid != os.getpid():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
