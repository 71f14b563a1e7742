"""Bodies of old entries in their sealed files, read back: in order for an audit, singly for a look-up.

A sealed file is an export (journal/export): a header, the entries one a line, an end. Nothing is believed here: whoever
gets a body holds it against the leaf hash, which stays in the database. A file that is missing, cut or changed gives no
body, and then that entry is a finding.
"""

from __future__ import annotations

import hashlib
import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from palyra.journal.chain import ACT, MAX_ENTRY_BYTES
from palyra.journal.lookup import Rows
from palyra.model.record import Entry

LONGEST_LINE_BYTES = MAX_ENTRY_BYTES + 2
LONGEST_HEADER_BYTES = 16 << 20
"""It may be longer than an entry, and not as long as the disk."""
_NEVER = 1 << 63
OF_AN_ACT = f'"predicateType":"{ACT}"'.encode()
"""A string inside an entry has its quotes escaped, so these bytes stand nowhere else."""


def segment_file(folder: Path, first: int, count: int) -> Path:
    return folder / f"{first:012}-{first + count - 1:012}.jsonl"


class SealedBodies:
    def __init__(self, rows: Rows, folder: Path | None) -> None:
        self._rows = rows
        self._folder = folder
        self._segments: list[tuple[int, int]] = []
        self._newest = -1
        self._lines: Iterator[bytes] = iter(())
        self._at = -1
        self._end = -1

    def entry(self, index: int, leaf: bytes) -> Entry:
        """Quick when asked for in order, also with entries left out: an audit reads acts from the database, and a file
        that is begun again behind each of them is read as often as there are acts in it."""
        if not self._at <= index < self._end:
            self._seek(index)
        else:
            for _ in range(self._at, index):
                next(self._lines, b"")
        body = next(self._lines, b"").rstrip(b"\n") if index < self._end else b""
        self._at = index + 1
        return Entry(index, leaf, body)

    def body(self, index: int) -> bytes:
        return self.entry(index, b"").body

    def sha256(self, first: int, count: int, size: int) -> str:
        """Of the file itself; empty where it is not of that length, or cannot be read."""
        if self._folder is None:
            return ""
        try:
            with open(segment_file(self._folder, first, count), "rb", opener=_without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                    return ""
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return ""

    def _seek(self, index: int) -> None:
        self._end = -1
        if self._folder is None:
            return
        first, count = self._find(index)
        if not first <= index < first + count:
            self._read_again()  # others seal too, for as long as this process lives
            first, count = self._find(index)
        if first <= index < first + count:
            lines = _lines(segment_file(self._folder, first, count))
            self._lines, self._end = islice(lines, 1 + index - first, None), first + count

    def _find(self, index: int) -> tuple[int, int]:
        at = bisect_right(self._segments, (index, _NEVER)) - 1  # there may be as many rows as somebody put there
        return self._segments[at] if at >= 0 else (0, 0)

    def _read_again(self) -> None:
        newest = self._rows("SELECT coalesce(max(first), -1) FROM segments", ())[0][0]
        if newest != self._newest:
            found = self._rows("SELECT first, count FROM segments WHERE present = 1 ORDER BY first", ())
            self._segments, self._newest = [(first, count) for first, count in found], newest


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return
            header = file.readline(LONGEST_HEADER_BYTES)
            if not header.endswith(b"\n"):
                return
            yield header
            while line := file.readline(LONGEST_LINE_BYTES):
                yield line
    except OSError:
        return


def _without_waiting(path: str, flags: int) -> int:
    """A pipe in its place keeps no audit waiting."""
    return os.open(path, flags | os.O_NONBLOCK)
