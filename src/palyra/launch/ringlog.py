"""The log of one background process: both streams in the order they came, bounded, readable by offset.

A folder of a few append-only files, each named by the offset it begins at; when the newest is full the oldest is
removed. So a reader in another process needs no lock: a file only ever grows, and one that is gone was dropped. A
record is one byte for the stream, its length, its bytes. Offsets count the bytes of all records since the start.

Rules: a log is for its owner alone (0700, 0600); a disk that is full costs output, never the process; a record that a
crash cut short is not shown. Not here: redaction, which comes before `write` (background).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections import deque
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from palyra.model.call import is_ulid
from palyra.model.outcome import StreamName
from palyra.model.process import LogChunk, LogPage

SEGMENT_BYTES = 256 * 1024
SEGMENTS = 4
"""Together 1 MiB on disk for each process."""
RECORDS = 8192
"""Of a file: a program that writes byte by byte gets a shorter log, or each page of it would hold its readers up."""
MAX_LOGS = 256
"""Logs of ended processes that are kept; of whoever has most of them the oldest goes first."""
_OWNER = "owner"
_RECORD_BYTES = 64 * 1024
_HEAD = struct.Struct("!BI")
_TAGS = {StreamName.STDOUT: 1, StreamName.STDERR: 2}
_STREAMS = {tag: stream for stream, tag in _TAGS.items()}


class RingLog:
    """The writing end. One writer a log."""

    def __init__(
        self, folder: Path, *, principal: str, segment_bytes: int = SEGMENT_BYTES, segments: int = SEGMENTS
    ) -> None:
        folder.mkdir(mode=0o700)
        with contextlib.suppress(OSError), open(folder / _OWNER, "xb", opener=_private) as file:
            file.write(principal.encode("utf-8", "backslashreplace"))
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments = segments
        self._starts: deque[int] = deque()
        self._fd = -1
        self._size = self._records = 0
        self.total_bytes = 0

    def write(self, stream: StreamName, data: bytes) -> None:
        most = min(_RECORD_BYTES, self._segment_bytes - _HEAD.size)
        for at in range(0, len(data), most):
            self._append(_TAGS[stream], data[at : at + most])

    def _append(self, tag: int, part: bytes) -> None:
        record = _HEAD.pack(tag, len(part)) + part
        try:
            if self._fd < 0 or self._size + len(record) > self._segment_bytes or self._records >= RECORDS:
                self._turn()
            written = os.write(self._fd, record)
            if written < len(record):
                raise OSError("the disk accepted only a part")
            self._size += written
            self._records += 1
        except OSError:
            self._give_up_segment()
        self.total_bytes += len(part)

    def _turn(self) -> None:
        """Begin the next file; the oldest makes room."""
        self.close()
        while len(self._starts) >= self._segments:
            with contextlib.suppress(OSError):
                _segment(self._folder, self._starts.popleft()).unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(_segment(self._folder, self.total_bytes), flags, 0o600)
        self._starts.append(self.total_bytes)
        self._size = self._records = 0

    def _give_up_segment(self) -> None:
        """After a failed write: what follows begins a file of its own, so that its offset is right."""
        if self._fd >= 0 and self._size == 0:  # a full disk must not trade old output for empty files
            with contextlib.suppress(OSError):
                _segment(self._folder, self._starts.pop()).unlink()
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Record(NamedTuple):
    offset: int
    stream: StreamName
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


def read_log(
    folder: Path, *, offset: int, max_bytes: int, stream: StreamName | None = None, growing: bool = False
) -> LogPage:
    """A page from `offset` on, of one stream or both. ValueError when the log has not come that far.

    A character that the page's end would cut in two is left for the next page, which may come only if the log is
    still `growing`. A folder that is not there is an empty log.
    """
    for _ in range(SEGMENTS + 1):  # a writer may drop the file we are about to read
        with contextlib.suppress(FileNotFoundError):
            return _read(folder, offset, max_bytes, stream, growing=growing)
    return LogPage(offset_bytes=offset, next_offset_bytes=offset, dropped_bytes=0, total_bytes=offset)


def _read(folder: Path, offset: int, max_bytes: int, stream: StreamName | None, *, growing: bool) -> LogPage:
    starts = _starts_in(folder)
    total = _end_of(folder, starts[-1]) if starts else 0
    if offset > total:
        raise ValueError(f"the log has {total} bytes")
    first = max((at for at, start in enumerate(starts) if start <= offset), default=0)
    reading = _Reading(offset, max_bytes, stream)
    for record in (record for start in starts[first:] for record in _records(folder, start, beyond=offset)):
        if not reading.take(record):
            break
    if not reading.parts and reading.position == offset:
        reading.begin = reading.position = total  # whatever lay between was dropped
    if growing or reading.position < total:
        reading.leave_cut_character()
    return LogPage(
        offset_bytes=reading.begin,
        next_offset_bytes=reading.position,
        dropped_bytes=reading.begin - offset,
        total_bytes=max(total, reading.position),
        chunks=_merged(chunk for _, chunk in reading.parts),
    )


class _Reading:
    """One page on its way: what was taken, each part with the offset it ends at."""

    def __init__(self, offset: int, room: int, stream: StreamName | None) -> None:
        self.begin = self.position = offset
        self.parts: list[tuple[int, LogChunk]] = []
        self._room = room
        self._stream = stream

    def take(self, record: _Record) -> bool:
        """False when the page ends here."""
        if record.offset > self.position:  # what lay between was dropped
            if self.parts:
                return False
            self.begin = self.position = record.offset
        if self._stream is not None and record.stream is not self._stream:
            self.position = record.end
            return True
        part = record.data[self.position - record.offset :][: self._room]
        self.position += len(part)
        self._room -= len(part)
        self.parts.append((self.position, LogChunk(record.stream, part)))
        return self._room > 0

    def leave_cut_character(self) -> None:
        """For the next page, unless this one is too small to hold even that one character."""
        if not self.parts:
            return
        end, chunk = self.parts[-1]
        cut = _cut_bytes(chunk.data)
        if not cut or (cut == len(chunk.data) and len(self.parts) == 1 and not self._room):
            return
        self.parts.pop()
        if cut < len(chunk.data):
            self.parts.append((end - cut, LogChunk(chunk.stream, chunk.data[:-cut])))
        self.position = end - cut


def _cut_bytes(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character that is not whole."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte & 0xF8 == 0xF0 else 3 if byte & 0xF0 == 0xE0 else 2 if byte & 0xE0 == 0xC0 else 1
        return back if needed > back else 0
    return 0


def _merged(chunks: Iterator[LogChunk]) -> tuple[LogChunk, ...]:
    by_stream = groupby(chunks, key=attrgetter("stream"))
    return tuple(LogChunk(stream, b"".join(chunk.data for chunk in some)) for stream, some in by_stream)


def _end_of(folder: Path, start: int) -> int:
    """The offset that a file has come to."""
    end = 0
    for _, _, size in _heads(_segment(folder, start).read_bytes()):
        end += size
    return start + end


def _records(folder: Path, start: int, *, beyond: int) -> Iterator[_Record]:
    """Those of a file that end past an offset."""
    data, offset = _segment(folder, start).read_bytes(), start
    for tag, at, size in _heads(data):
        offset += size
        if offset > beyond:
            yield _Record(offset - size, _STREAMS[tag], data[at : at + size])


def _heads(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(tag, where its bytes begin, how many) of each record. There may be thousands, and every page waits for this."""
    at, head, unpack, end = 0, _HEAD.size, _HEAD.unpack_from, len(data)
    while at + head <= end:
        tag, size = unpack(data, at)
        at += head
        if tag not in _STREAMS or at + size > end:
            return
        yield tag, at, size
        at += size


def _starts_in(folder: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isascii() and name.isdigit())
    except FileNotFoundError:
        return []


def _segment(folder: Path, start: int) -> Path:
    return folder / f"{start:020d}"


def prune_logs(logs: Path, *, keep: Collection[str], most: int = MAX_LOGS) -> None:
    """Remove logs beyond `most`, never those of `keep`. Whoever has most of them gives one: a principal that
    starts hundreds of short processes pushes out no log of those who have fewer."""
    with contextlib.suppress(OSError):
        ended = sorted((name for name in os.listdir(logs) if is_ulid(name) and name not in keep), reverse=True)
        if len(ended) <= most:
            return
        by_owner: dict[bytes, list[str]] = {}
        for name in ended:  # ids sort by age: the oldest ends up last
            by_owner.setdefault(_owner_of(logs / name), []).append(name)
        for _ in range(len(ended) - most):
            largest = max(map(len, by_owner.values()))
            whose = min((names for names in by_owner.values() if len(names) == largest), key=lambda names: names[-1])
            remove_log(logs, whose.pop())


@lru_cache(maxsize=2 * MAX_LOGS)
def _owner_of(folder: Path) -> bytes:
    """Nobody's where there is no telling; a log never changes hands."""
    with contextlib.suppress(OSError):
        return (folder / _OWNER).read_bytes()
    return b""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def kept_logs(logs: Path) -> dict[str, int]:
    """Every log, by the id of its process, and the bytes it takes on disk."""
    found = {}
    with contextlib.suppress(OSError):
        for name in sorted(filter(is_ulid, os.listdir(logs))):
            with contextlib.suppress(OSError):
                found[name] = sum(entry.stat().st_size for entry in os.scandir(logs / name))
    return found


def remove_log(logs: Path, process_id: str) -> bool:
    import shutil  # too heavy for every start

    shutil.rmtree(logs / process_id, ignore_errors=True)
    return not (logs / process_id).exists()
