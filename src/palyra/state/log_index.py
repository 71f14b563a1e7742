"""The header of the log's index, in the memory that all processes of a home share: whether anybody has committed.

It is what SQLite itself compares before it trusts a page it has read before (its "WAL-index header", 2 × 48 bytes,
written anew by every commit before that is acknowledged, whichever process made it). Asking SQLite to compare takes and
drops a lock in the kernel each time; looking at it here takes neither, and decides nothing but whether to ask again.

Rules: SQLite's own descriptor is mapped, never one of ours: closing another one of that file would drop SQLite's locks.
Read only; where it cannot be had (no /proc, no log) there is none, and SQLite is asked.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

HEADER_BYTES = 96
PAGE_BYTES = 4096
_COMMITS = slice(8, 12)
"""In the header, how many commits there were: one more with each, whoever made it."""
_ORDER = sys.byteorder
_PAGE_BYTES, _LAST_FRAME, _SALT = slice(14, 16), slice(16, 20), slice(32, 40)
_CHECKPOINTS = slice(96, 132)
"""Of the index, behind the header: how many frames were copied back, readers' marks, how many were to be."""
_COPIED, _TO_COPY = slice(0, 4), slice(32, 36)
LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
LOG_SALT_AT = 16


class Frame(NamedTuple):
    """The log's newest frame: where in the file its salt and its checksum stand. The log's own header has the salt."""

    offset: int
    salt: bytes
    checksum: bytes


def commits_between(before: object, after: object) -> int:
    """Of two moments of one database (`Writer.moment`): how many commits lie between them, whoever made them. -1 where
    that cannot be told."""
    if type(before) is not tuple or type(after) is not tuple or not len(before) == len(after) == 2:
        return -1
    (connection, first), (its_connection, last) = before, after
    if connection is not its_connection:
        return -1
    return LogIndex.commits_since(first, last)


class LogIndex:
    """Of a connection that is open, and no longer than it is."""

    def __init__(self, database: str) -> None:
        self._address = 0
        fd = _own_descriptor(f"{database}-shm")
        if fd >= 0:
            self._map(fd)

    def _map(self, fd: int) -> None:
        import ctypes  # for those alone who ask again and again

        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
            *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
        )
        import mmap

        address = libc.mmap(None, PAGE_BYTES, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            return
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._address, self._unmap = address, libc.munmap
        self._header = (ctypes.c_char * HEADER_BYTES).from_address(address)
        self._behind = (ctypes.c_char * (_CHECKPOINTS.stop - HEADER_BYTES)).from_address(address + HEADER_BYTES)

    @property
    def is_seen(self) -> bool:
        return self._address != 0

    def header(self) -> bytes:
        """As it stands; half of an old and half of a new one are like neither."""
        return self._header.raw

    def checkpoints(self) -> bytes:
        """Another value whenever a checkpoint began or ended since, whichever program made it."""
        behind = self._behind.raw
        return self.header()[_SALT] + behind[_COPIED] + behind[_TO_COPY]

    def last_frame(self) -> Frame | None:
        """In a transaction that has written nothing. None where the log is empty."""
        header = self.header()
        number = int.from_bytes(header[_LAST_FRAME], _ORDER)
        if not number:
            return None
        size = int.from_bytes(header[_PAGE_BYTES], _ORDER)
        page = (size & 0xFE00) + ((size & 1) << 16)  # 64 KiB is written as 1
        sums = b"".join(int.from_bytes(header[at : at + 4], _ORDER).to_bytes(4, "big") for at in (24, 28))
        offset = LOG_HEADER_BYTES + (number - 1) * (FRAME_HEADER_BYTES + page) + 8
        return Frame(offset, header[_SALT], sums)

    @staticmethod
    def commits_since(before: bytes, after: bytes) -> int:
        """By two headers of one index."""
        return int.from_bytes(after[_COMMITS], _ORDER) - int.from_bytes(before[_COMMITS], _ORDER)

    def close(self) -> None:
        if self._address:
            del self._header, self._behind
            self._unmap(self._address, PAGE_BYTES)
            self._address = 0


def _own_descriptor(path: str) -> int:
    """SQLite's, of the file that lies at `path`; -1 without one."""
    try:
        lies_there = os.stat(path)
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            try:
                held = os.fstat(fd)
            except OSError:  # the listing's own
                continue
            if os.path.samestat(held, lies_there) and held.st_size >= PAGE_BYTES:
                return fd
    except OSError:
        pass
    return -1
