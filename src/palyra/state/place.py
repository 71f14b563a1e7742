"""The files of the state, as they were when they were opened: whether they still lie where the next process looks.

A folder that was moved away, an old copy put in its place, a log that somebody deleted: SQLite goes on with the files
it holds open, and what it commits there is lost with the process. So the names are looked up again: those of the log
and its index before something is written, that of the database before anybody is told that it is durable.

Not here: what a file holds. One that is overwritten in its place is for the audit to find (journal/audit).
"""

from __future__ import annotations

import os
from pathlib import Path

Identity = tuple[int, int]


class Replaced(Exception):
    """What is committed would lie in a file that nobody finds again."""


class Place:
    def __init__(self, database: Path) -> None:
        self._database, self._log, self._index = (f"{database}{end}" for end in ("", "-wal", "-shm"))
        self._identities: dict[str, Identity] = {}
        self._log_bytes = 0
        self.check_database()

    def check_log(self) -> bool:
        """In a transaction: the log and its index were made by the first one at the latest, and stay as long as anybody
        is connected. False when the log is shorter than it was: we never make it so, but others may, having copied it
        back."""
        size, before = self._look(self._log).st_size, self._log_bytes
        self._log_bytes = size
        self._look(self._index)
        return size >= before

    def check_database(self) -> None:
        self._look(self._database)

    def _look(self, name: str) -> os.stat_result:
        try:
            found = os.stat(name)
        except FileNotFoundError:
            raise Replaced(f"{name} was removed while it was in use") from None
        identity = found.st_dev, found.st_ino
        if self._identities.setdefault(name, identity) != identity:
            raise Replaced(f"{name} was replaced while it was in use")
        return found
