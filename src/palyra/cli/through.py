"""A program's output on its way to our own stdout and stderr, whoever reads them, and even when nobody does.

Rules: the event loop never waits for a reader, or the deadline and Ctrl-C would wait too: threads write, one for each
file (one for both when they are the same file, so that a terminal shows things in their order). What waits to be
written is bounded: past `HIGH` bytes the program itself has to wait. A reader that went away, or a full disk, cancels
the call: its record stays. What a finished program said is waited for as any pipe is; what a program said that was
ended is given up when nobody has taken a byte for a while. Not here: redaction, quotas (engine, launch).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable

from palyra.cli.say import drain, say_error, write_some
from palyra.model.outcome import StreamName

HIGH = 256 * 1024
LOW = 64 * 1024
PATIENCE_S = 2.0
"""How long nobody may have read anything before the rest of an ended program's output is given up."""


class _Lane:
    """One file and the thread that writes it. Its counters are only touched by the loop's thread."""

    def __init__(self, *fds: int, moved: Callable[[], None], broke: Callable[[_Lane, OSError], None]) -> None:
        self._fds = fds
        self.waiting = 0
        self._moved = moved
        self._broke = broke
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._wake = threading.Semaphore(0)
        self._room: asyncio.Future[None] | None = None
        self._thread: threading.Thread | None = None

    def put(self, chunk: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name=f"palyra-out-{self._fds[0]}", daemon=True)
            self._thread.start()
        self.waiting += len(chunk)
        self._chunks.append(chunk)
        self._wake.release()

    def room(self) -> asyncio.Future[None] | None:
        if self._room is None and self.waiting > HIGH:
            self._room = self._loop.create_future()
        return self._room

    def forget(self) -> None:
        """Nobody will read the rest. What is written under this number from now on goes nowhere."""
        self._chunks.clear()
        self._taken(self.waiting)
        for fd in self._fds:
            drain(fd)

    def _write(self) -> None:
        while True:
            self._wake.acquire()
            try:
                view = memoryview(self._chunks.popleft())
            except IndexError:
                continue  # forgotten meanwhile
            try:
                while view:
                    count = write_some(self._fds[0], view)
                    view = view[count:]
                    self._loop.call_soon_threadsafe(self._taken, count)
            except OSError as error:
                self._loop.call_soon_threadsafe(self._broke, self, error)
                return
            except RuntimeError:
                return  # the call is over and the loop is closed

    def _taken(self, count: int) -> None:
        self._moved()
        self.waiting = max(0, self.waiting - count)
        if self._room is not None and self.waiting <= LOW:
            room, self._room = self._room, None
            room.set_result(None)


class WriteThrough:
    """The child's streams as they come: an `on_output` that says when it has room for more."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self._interrupted = False
        self._moved = asyncio.Event()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if os.path.samestat(os.fstat(1), os.fstat(2)):
            self._lanes = dict.fromkeys(StreamName, self._lane(1, 2))
        else:
            self._lanes = {StreamName.STDOUT: self._lane(1), StreamName.STDERR: self._lane(2)}
        self.failed: OSError | None = None
        self.last = b""
        """The last byte there was."""
        self.lost = 0
        """Bytes that were given up because nobody read."""

    def _lane(self, *fds: int) -> _Lane:
        return _Lane(*fds, moved=self._moved.set, broke=self._on_error)

    def __call__(self, stream: StreamName, chunk: bytes) -> None:
        if self.failed is None:
            self.last = chunk[-1:] or self.last
            self._lanes[stream].put(chunk)

    def room(self, stream: StreamName) -> asyncio.Future[None] | None:
        return self._lanes[stream].room() if self.failed is None else None

    def interrupt(self) -> None:
        """A signal came: the call is being cancelled, and patience with whoever reads is over."""
        self._interrupted = True
        self._moved.set()

    @property
    def _over(self) -> bool:
        return self._interrupted or self.failed is not None

    async def deliver(self, *, patient: bool) -> None:
        """Until all is written, or nobody reads on. `patient`: wait for a reader as long as no signal comes."""
        while any(lane.waiting for lane in self._lanes.values()):
            self._moved.clear()
            try:
                async with asyncio.timeout(None if patient and not self._over else PATIENCE_S):
                    await self._moved.wait()
            except TimeoutError:
                self._give_up()

    def _give_up(self) -> None:
        for lane in set(self._lanes.values()):
            if lane.waiting:
                self.lost += lane.waiting
                lane.forget()

    def _on_error(self, lane: _Lane, error: OSError) -> None:
        lane.forget()
        if self.failed is None:
            self.failed = error
            self._cancel()

    def say_lost(self) -> None:
        if self.lost:
            say_error(f"The output was not read: {self.lost} bytes of it were not written.")
