"""Detects writes to the database file or its log by a program other than SQLite.

A file truncated or overwritten in place keeps its inode, so `state/place` does not see it, and SQLite goes on with the
pages it has cached. Invariants, compared in each transaction while the writer's lock is held:

- The database file changes (size, modification time) only with a checkpoint, which SQLite notes in the log's index.
- The log's header and its last frame have the salt and the checksum that the log's index has.

Not here: an old entry that is overwritten by SQLite itself, or one frame in the middle; the audit finds those.
"""

from __future__ import annotations

import os

from palyra.state.log_index import LOG_SALT_AT, Frame, LogIndex
from palyra.state.place import Replaced


class Contents:
    def __init__(self, database: str) -> None:
        self._database = database
        self._seen: tuple[tuple[int, int], bytes] | None = None

    def check(self, index: LogIndex, log_fd: int) -> None:
        """Raise `Replaced` where another program wrote to the files."""
        found = os.stat(self._database)
        stamp, checkpoints = (found.st_size, found.st_mtime_ns), index.checkpoints()
        before, self._seen = self._seen, (stamp, checkpoints)
        if before is not None and before[0] != stamp and before[1] == checkpoints:
            raise Replaced(f"{self._database} was overwritten or truncated while it was in use")
        frame = index.last_frame()
        if frame is not None and _ends_of_log(log_fd, frame) != (frame.salt, frame.salt + frame.checksum):
            raise Replaced(f"{self._database}-wal was overwritten or truncated while it was in use")


def _ends_of_log(log_fd: int, frame: Frame) -> tuple[bytes, bytes]:
    salt = os.pread(log_fd, len(frame.salt), LOG_SALT_AT)
    return salt, os.pread(log_fd, len(frame.salt) + len(frame.checksum), frame.offset)
