"""The files of the state, as they were when they were opened: whether they still lie where the next process looks.

A folder that was moved away, an old copy put in its place, a log that somebody deleted: SQLite goes on with the files
it holds open, and what it commits there is lost with the process. So their names are looked up again before anybody
is told that it is durable. Mostly the folder's own answers for them: names in it do not
change without its time of change, once that is old enough to tell two changes apart.

The log itself is asked for its length alone: since Linux 6.13 a file whose times were read gets a finer one with the
next write to it, and every commit would pay for storing that.

The key file must be there, too, and not written into: what is signed then could not be continued by the next process.

Not here: what a file holds (state/contents, and the audit).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from palyra.state.keyfile import KEY_FILE

Identity = tuple[int, int]
SETTLED_AFTER_S = 0.1
"""Longer than a tick of the kernel's clock: two changes further apart differ by their times."""
SETTLED_AFTER_WHOLE_S = 2.5
"""The same where a file system keeps whole seconds."""
LOOK_AGAIN_AFTER_S = 5.0
"""However still the folder seems: something may be mounted over a file, and a clock may have been set."""


class Replaced(Exception):
    """What is committed would lie in a file that nobody finds again."""


class Place:
    def __init__(self, database: Path) -> None:
        self._folder = os.path.dirname(database)
        self._names = [str(database)]
        self._more_names = [f"{database}-wal", f"{database}-shm"]
        self._key = os.path.join(self._folder, KEY_FILE)
        self._key_seen: tuple[Identity, tuple[int, int]] | None = None
        """Its identity, size and time. A new key's file takes the old one's place; none is written into."""
        self._log_fd = -1
        self._log_bytes = 0
        self._identities: dict[str, Identity] = {}
        self._seen: tuple[int, int, int] | None = None
        """The folder, when all names were last looked up."""
        self._seen_since_s = 0.0
        self._trusted_until_s = 0.0
        """While the folder is as it was seen, its files are where they were."""
        self.check()

    def check_log(self) -> bool:
        """In a transaction: the log and its index were made by the first one at the latest, and stay as long as anybody
        is connected. False when the log is shorter than it was: we never make it so, but others may, having copied it
        back."""
        if self._log_fd < 0:
            self._hold_log()
        before, self._log_bytes = self._log_bytes, os.lseek(self._log_fd, 0, os.SEEK_END)
        return self._log_bytes >= before

    def check(self) -> bool:
        """`Replaced`, or whether there was something new to see in the folder."""
        try:
            folder = os.stat(self._folder)
        except FileNotFoundError:
            raise _removed(self._folder) from None
        now_s, seen = time.monotonic(), (folder.st_dev, folder.st_ino, folder.st_ctime_ns)
        if seen != self._seen:
            self._seen, self._seen_since_s, self._trusted_until_s = seen, now_s, 0.0
        elif now_s < self._trusted_until_s:
            return False
        for name in self._names:
            self._look(name)
        self._look_at_key()
        settled_after_s = SETTLED_AFTER_S if folder.st_ctime_ns % 10**9 else SETTLED_AFTER_WHOLE_S
        if now_s - self._seen_since_s > settled_after_s:
            self._trusted_until_s = now_s + LOOK_AGAIN_AFTER_S
        return True

    @property
    def log_fd(self) -> int:
        return self._log_fd

    def close(self) -> None:
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1

    def _hold_log(self) -> None:
        log = self._more_names[0]
        try:
            self._log_fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise _removed(log) from None
        self._identities[log] = _identity(os.fstat(self._log_fd))
        self._names += self._more_names
        self._seen = None

    def _look(self, name: str) -> None:
        identity = _identity(self._stat(name))
        if self._identities.setdefault(name, identity) != identity:
            raise Replaced(f"{name} was replaced while it was in use")

    def _look_at_key(self) -> None:
        found, before = self._stat(self._key), self._key_seen
        self._key_seen = now = _identity(found), (found.st_size, found.st_mtime_ns)
        if before is not None and before[0] == now[0] and before[1] != now[1]:
            self._key_seen = before
            raise Replaced(f"{self._key} was overwritten or truncated while it was in use")

    @staticmethod
    def _stat(name: str) -> os.stat_result:
        try:
            return os.stat(name)
        except FileNotFoundError:
            raise _removed(name) from None


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _removed(name: str) -> Replaced:
    return Replaced(f"{name} was removed while it was in use")
