"""Both output streams of one program, bounded, as they come.

Rules: reads never block; the sink gets chunks of at most 4 KiB and never more than the quota in all; the byte
that exceeds the quota trips the capture, and whoever waits kills the tree. A launch nonce on stderr is taken
out and remembered. A sink without room for more stops the reading of that stream, and so the program, until it has
room again or the program is over. After `drain` nothing more is read, even if a stranger still holds the other end.

Not here: killing (ending), the nonce's meaning (message).
"""

from __future__ import annotations

import asyncio
import os
import select

from palyra.launch.executor import CHUNK, Room, Sink
from palyra.model.outcome import StreamName

_READ_BYTES = 65536


class Capture:
    def __init__(self, *, stdout: int, stderr: int, quota_bytes: int, sink: Sink, nonce: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = {StreamName.STDOUT: stdout, StreamName.STDERR: stderr}
        self._sink = sink
        room: Room | None = getattr(sink, "room", None)
        self._room = room
        self._left = quota_bytes
        self._nonce = nonce + b"\n"
        self._kept = b""
        self._unread = False
        """While reading out: more may be in the pipe."""
        self._listens = False
        """The loop was asked to tell when there is something to read."""
        self.counts = {StreamName.STDOUT: 0, StreamName.STDERR: 0}
        self.exceeded = False
        self.launch_failed = False
        self.last_words = b""
        """The end of stderr, for the sentence about a failed launch."""
        self.tripped: asyncio.Future[None] = self._loop.create_future()
        """Done when the quota is exceeded; carries the exception of a sink that broke."""
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        self._listens = True
        for stream, fd in self._open.items():
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._readable, stream, fd)

    def read_out(self) -> None:
        """What has come so far, of streams that nobody listens to yet: a program that has ended already. Most streams
        are empty then: one look at all of them tells."""
        look = select.poll()
        for fd in self._open.values():
            look.register(fd, select.POLLIN)
        told = {fd for fd, events in look.poll(0) if events & select.POLLIN}
        for stream, fd in tuple(self._open.items()):
            if fd not in told:
                continue
            os.set_blocking(fd, False)
            self._unread = True
            while stream in self._open and self._unread and not self.tripped.done():
                self._readable(stream, fd)

    async def drain(self, timeout_s: float) -> None:
        """Read what is left, until both streams end or the time is over."""
        if self._open and not self.exceeded and not self.tripped.done():
            self._room = None  # what is left is no more than two pipes hold
            for stream in self._open:
                self._resume(stream)
            await asyncio.wait({self._ended, self.tripped}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self.stop()

    def stop(self) -> None:
        for stream in list(self._open):
            self._close(stream)
        if self._kept:
            kept, self._kept = self._kept, b""
            self._feed(StreamName.STDERR, kept)

    def _readable(self, stream: StreamName, fd: int) -> None:
        try:
            data = os.read(fd, min(_READ_BYTES, self._left + 1))
        except BlockingIOError:
            self._unread = False
            return
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return
        self._feed(stream, self._without_nonce(data) if stream is StreamName.STDERR else data)

    def _feed(self, stream: StreamName, data: bytes) -> None:
        self.counts[stream] += len(data)
        if stream is StreamName.STDERR:
            self.last_words = (self.last_words + data)[-CHUNK:]
        granted = data[: self._left]
        self._left -= len(granted)
        try:
            for at in range(0, len(granted), CHUNK):
                self._sink.feed(stream, granted[at : at + CHUNK])
        except Exception as error:  # noqa: BLE001  # a broken sink must end the call, not the loop's callback
            self._trip(error)
        if len(granted) < len(data):
            self.exceeded = True
            self._trip(None)
        elif self._room is not None and (room := self._room(stream)) is not None and stream in self._open:
            self._loop.remove_reader(self._open[stream])
            room.add_done_callback(lambda _: self._resume(stream))

    def _resume(self, stream: StreamName) -> None:
        if stream in self._open and not self.tripped.done():
            self._listens = True
            self._loop.add_reader(self._open[stream], self._readable, stream, self._open[stream])

    def _trip(self, error: Exception | None) -> None:
        """No more reading, or a flood would keep the loop busy while the tree is killed. The pipes stay open until
        then: closing them first would let the program end by SIGPIPE instead."""
        for fd in self._open.values():
            self._loop.remove_reader(fd)
        if not self.tripped.done():
            if error is None:
                self.tripped.set_result(None)
            else:
                self.tripped.set_exception(error)

    def _close(self, stream: StreamName) -> None:
        fd = self._open.pop(stream, None)
        if fd is not None:
            if self._listens:
                self._loop.remove_reader(fd)
            try:  # noqa: SIM105  # once or twice in every call
                os.close(fd)
            except OSError:
                pass
        if not self._open and not self._ended.done():
            self._ended.set_result(None)

    def _without_nonce(self, data: bytes) -> bytes:
        """Hold back only what can still become the nonce; its first byte is one that programs hardly write."""
        data, self._kept = self._kept + data, b""
        if self._nonce in data:
            self.launch_failed = True
            data = data.replace(self._nonce, b"")
        start = data.rfind(self._nonce[:1])
        if start >= 0 and self._nonce.startswith(data[start:]):
            data, self._kept = data[:start], data[start:]
        return data
