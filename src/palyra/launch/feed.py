"""A program's stdin: the plan's bytes or the caller's stream, written as the pipe takes them.

Rules: a program that does not read, or is gone, harms nobody; what the pipe took is counted and hashed, nothing
else; the pipe is closed at the end of the input, or when the program ends. Not here: reading a terminal (doors).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from palyra.launch.executor import Source
from palyra.launch.waiting import writable

_SLICE = 65536


class Feed:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._hash: hashlib._Hash | None = None
        """None while nothing was fed: most programs are fed nothing."""
        self.count = 0

    def sha256(self) -> str:
        return (self._hash or hashlib.sha256()).hexdigest()

    async def run(self, data: bytes, source: Source | None) -> None:
        try:
            os.set_blocking(self._fd, False)
            self._hash = hashlib.sha256()
            if not await self._write(data):
                return
            while source is not None and (chunk := await source.read()):
                if not await self._write(chunk):
                    return
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:  # noqa: SIM105  # in every call
                os.close(fd)
            except OSError:
                pass

    async def _write(self, data: bytes) -> bool:
        """False when nobody reads any more."""
        return await write_all(self._fd, data, self._took)

    def _took(self, part: bytes) -> None:
        assert self._hash is not None, "only `run` writes"
        self._hash.update(part)
        self.count += len(part)


async def write_all(fd: int, data: bytes, took: Callable[[bytes], None]) -> bool:
    """Write to a non-blocking pipe, telling what it took piece by piece; False when the other end is closed."""
    at = 0
    while at < len(data):
        try:
            count = os.write(fd, data[at : at + _SLICE])
        except BlockingIOError:
            await writable(fd)
        except BrokenPipeError:
            return False
        else:
            took(data[at : at + count])
            at += count
    return True
