"""The state in one SQLite file: turns by a file lock beside it, and the upkeep of its log.

Rules: the lock comes before BEGIN IMMEDIATE, so that waiting never blocks; the log file is copied back off the path of
commits, under the same lock, and reused rather than grown; a commit counts only if it lies where the next process
looks (state/place); after a fork the parent's connection is never touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palyra.errors import StateError
from palyra.journal.lookup import TREE_SIZE
from palyra.state.connection import PATIENCE_S, connect
from palyra.state.database import InVain, Trouble
from palyra.state.db import Home
from palyra.state.forking import waited_for
from palyra.state.lock import FileLock
from palyra.state.mark import Mark, check_mark, read_mark
from palyra.state.place import Place, Replaced
from palyra.state.reserve import fill_up, has_room, is_given, restore_reserve
from palyra.state.shape import check_strangers
from palyra.state.trouble import is_full, no_room, unusable
from palyra.state.upkeep import AfterCommits, on_a_thread

if TYPE_CHECKING:
    from palyra.state.contents import Contents
    from palyra.state.log_index import LogIndex

LOG_BYTES = 8 << 20
"""What the log needs between two copies, with room for a few large calls."""
BYTES_PER_COPY_BACK = 6 << 20
"""Of the log, as much as this process will have written there. Copying costs a page read and written for each that
changed, however often: callers that share commits change the same ones again and again."""
LOG_BYTES_PER_COMMIT, LOG_BYTES_PER_BYTE = 24 << 10, 3
"""Measured: the pages of a commit, and what records need beside their own bytes."""
ENTRIES_PER_COPY_BACK = 512
"""Whoever commits the entry that crosses a multiple of this copies the log back, whatever it wrote itself: where many
processes come and go none of them knows how long the log is."""
COPY_BACK_PATIENCE_S = 2.0
COMMITS_BEFORE_GROWTH = 4
"""A process that commits more than one call's entries will go on; one that ends would grow the log for nothing."""

_FULL, _IOERR = 13, 10
_FAILED_SYNC = frozenset({1034, 1290})
"""IOERR_FSYNC, IOERR_DIR_FSYNC: nobody knows what the disk holds, full or not."""
_WAIT = frozenset({5, 6, 15})  # BUSY, LOCKED, PROTOCOL (locks of the log's index)
_OF_THE_WORK = frozenset({1, 18, 19, 20, 21, 25})  # ERROR, TOOBIG, CONSTRAINT, MISMATCH, MISUSE, RANGE


class SqliteDatabase:
    is_far = False

    def __init__(self, home: Home, connection: sqlite3.Connection) -> None:
        self._home = home
        self.use(connection)
        self._layout: int = self._cursor.execute("PRAGMA schema_version").fetchone()[0]
        """As it was found sound when the home was opened, or since."""
        self.lock = FileLock(home.lock)
        self._place = Place(home.database)
        self._mark = Mark(home.state)
        self._contents: Contents | None = None
        """With the index alone: a short command has just read the files anew."""
        self._index: LogIndex | None = None
        self._unmarked = 0
        """So many entries there are, and the mark does not say so yet."""
        self._copy_back_due = self._is_full = False
        self._unsaved_bytes = 0
        self._growth = AfterCommits(COMMITS_BEFORE_GROWTH)
        self._upkeep = waited_for(threading.Lock())

    def use(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cursor = connection.cursor()
        """For statements whose answer nobody keeps: one for all of them."""
        self._version: int | None = None
        """When the layout was last looked at; each connection counts for itself."""
        self._began: bytes | None = None
        self._ours: bytes | None = None
        """The header of the log's index when this transaction began, and after the last commit, if that was ours."""

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self.connection.execute(sql, parameters)

    def send(self, sql: str, parameters: tuple[object, ...], *, in_vain: InVain | None = None) -> None:
        try:
            self._cursor.execute(sql, parameters)
        except sqlite3.IntegrityError as error:
            if in_vain is None:
                raise
            raise in_vain(parameters) from error

    def settle(self) -> None:
        """Everything was done at once."""

    def read(self, sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"The database cannot be read: {error}.") from error

    def version(self) -> int | None:
        index = self._index
        self._began = index.header() if index is not None and index.is_seen else None
        if self._version is not None and self._began is not None and self._began == self._ours:
            return self._version  # nobody committed after us, and SQLite need not be asked
        version: int = self._cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._check_layout()
            self._version = version
        return version

    def _check_layout(self) -> None:
        """Somebody else wrote: a trigger made under a running process would drop what it acknowledges."""
        layout: int = self._cursor.execute("PRAGMA schema_version").fetchone()[0]
        if layout != self._layout:
            check_strangers(self.connection)
            self._layout = layout

    def moment(self) -> object:
        connection = self.connection  # a fork's is another
        if connection.in_transaction:
            return None
        index = self._index or self._watch_log()
        if index.is_seen:
            return connection, index.header()
        try:
            return connection, self.version(), connection.total_changes
        except sqlite3.Error:  # whoever reads is told
            return None

    def _watch_log(self) -> LogIndex:
        from palyra.state.contents import Contents  # for those alone who ask again and again
        from palyra.state.log_index import LogIndex

        self._index, self._contents = LogIndex(str(self._home.database)), Contents(str(self._home.database))
        return self._index

    def _know_ours(self, *, wrote: bool) -> None:
        """After a commit: one more than there were when it began is this one. Where a stranger, who keeps none of our
        locks, came between, that is not so, and SQLite is asked the next time; and where we may have written nothing,
        which SQLite does not count, the one more would be a stranger's."""
        index, began, self._ours = self._index, self._began, None
        if wrote and index is not None and began is not None:
            now = index.header()
            self._ours = now if index.commits_since(began, now) == 1 else None

    # ── turns ──

    def try_begin(self, first: str) -> bool:
        if not self.lock.try_acquire():
            return False
        self._cursor.execute("BEGIN IMMEDIATE")
        if not self._place.check_log():
            self._check_length()
        if self._contents is not None and self._index is not None and self._index.is_seen:
            self._contents.check(self._index, self._place.log_fd)
        return True

    def _check_length(self) -> None:
        """What was acknowledged is there for somebody who has read nothing yet."""
        had = read_mark(self._home.state)
        with contextlib.closing(connect(self._home.database)) as connection:
            check_mark(self._home.state, had=had, has=connection.execute(TREE_SIZE).fetchone()[0])

    def begin_again(self) -> None:
        self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self, *, before: int, after: int, bytes_written: int) -> None:
        self._cursor.execute("COMMIT")
        if self._began is not None:
            self._know_ours(wrote=after > before)
        if self._place.check() and is_given(self._home.reserve):
            self._is_full = True
        if after > before:
            self._unmarked = after
        self._unsaved_bytes += LOG_BYTES_PER_COMMIT + LOG_BYTES_PER_BYTE * bytes_written
        crossed = before // ENTRIES_PER_COPY_BACK != after // ENTRIES_PER_COPY_BACK
        if crossed or self._unsaved_bytes > BYTES_PER_COPY_BACK:
            self._copy_back_due = True

    def let_go(self) -> None:
        if self.connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
        self.lock.release()

    def trouble(self, error: BaseException) -> Trouble:
        code = _code(error)
        if code in _WAIT:
            return Trouble.WAIT
        if code == _FULL or (code == _IOERR and not _is_failed_sync(error) and is_full(self._home.state)):
            return Trouble.FULL
        if code in _OF_THE_WORK or not isinstance(error, sqlite3.Error):
            return Trouble.OF_THE_WORK
        return Trouble.STOP

    def come_back(self) -> bool:
        """A file is never away."""
        return False

    def was_kept(self) -> bool:
        """Its answers are never lost."""
        return False

    def give_reserve(self) -> bool:
        try:
            self._home.reserve.unlink()
        except FileNotFoundError:  # another process was first; what has run here may use it too
            return True
        except OSError:
            return False
        return True

    def reopen(self) -> bool:
        home = self._home
        if not has_room(home.state):
            return False
        had = read_mark(home.state)
        connection = connect(home.database)
        try:
            check_strangers(connection)
            check_mark(home.state, had=had, has=connection.execute(TREE_SIZE).fetchone()[0])
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise unusable(home.database, error) from error
            raise
        if self._index is not None:
            self._index.close()
            self._index = None
        before = self.connection
        self.use(connection)
        before.close()
        self._growth = AfterCommits(COMMITS_BEFORE_GROWTH)
        restore_reserve(home.reserve)
        self._is_full = False
        return True

    def sweep(self, statements: tuple[str, ...]) -> None:
        """Under the writer's lock, on a connection that does not look for references row by row: one pass does it."""
        lock = FileLock(self._home.lock)
        if not lock.acquire(PATIENCE_S):
            raise StateError(
                "Another process holds the journal's lock.", "Try again; what was marked for removal stays marked."
            )
        try:
            with contextlib.closing(connect(self._home.database)) as connection:
                for pragma in ("foreign_keys = OFF", "secure_delete = ON"):
                    connection.execute(f"PRAGMA {pragma}").fetchall()
                connection.execute("BEGIN IMMEDIATE")
                for statement in statements:
                    connection.execute(statement)
                connection.execute("COMMIT")
                # Old pages lie in the log until it is copied back; what was removed must not be read from there.
                ((is_read, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                if is_read:
                    raise StateError(
                        "What was removed still lies in the log: another process is reading it.",
                        "Try again when it has ended (a verify, an export, a backup).",
                    )
        except sqlite3.Error as error:
            raise StateError(f"Removed data could not be overwritten: {error}.", "Try again.") from error
        finally:
            lock.close()

    def who_holds(self) -> str:
        return f"Find it with: fuser '{self._home.lock}'"

    def forked(self) -> None:
        """Using the parent's connection corrupts, closing it could drop its log."""
        _INHERITED.append(self.connection)
        self._place.close()
        self._index = None  # its mapping is the parent's, and goes with this process
        self.use(connect(self._home.database))
        self._upkeep = waited_for(threading.Lock())
        self.lock = FileLock(self._home.lock)
        self._place, self._mark, self._unmarked = Place(self._home.database), Mark(self._home.state), 0

    def close(self, *, is_sound: bool) -> None:
        self._write_mark()
        if self._copy_back_due and is_sound:
            self._copy_back(lambda _: None)
        if self._index is not None:
            self._index.close()
            self._index = None
        self.connection.close()
        self._place.close()
        self._mark.close()
        self.lock.close()

    # ── the log file ──

    def look_after(self, loop: asyncio.AbstractEventLoop | None, fail: Callable[[StateError], None]) -> None:
        self._write_mark()
        if self._is_full:
            fail(no_room())
            return
        if not self._growth.is_done:
            self._growth.count(loop, self._settle_in)
        if not self._copy_back_due:
            return
        self._copy_back_due, self._unsaved_bytes = False, 0
        if loop is None:
            self._copy_back(fail)
        elif not on_a_thread(loop, self._copy_back, fail):
            self._copy_back_due = True

    def _write_mark(self) -> None:
        entries, self._unmarked = self._unmarked, 0
        if entries:
            self._mark.write(entries)

    def _settle_in(self) -> None:
        self._grow_log()
        if self._index is None:
            self._watch_log()

    def _grow_log(self) -> None:
        """The file's full length at once, by zeros that are no frames, so that commits overwrite: in a file that grows
        each pays for a commit of the file system as well. Nobody appends meanwhile, whichever program it is of. When
        it cannot be done only time is lost."""
        lock = FileLock(self._home.lock)
        try:
            if lock.acquire(COPY_BACK_PATIENCE_S):
                self._place.check()
                with self._upkeep, contextlib.closing(connect(self._home.database)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    self._place.check_log()
                    self._place.check()
                    fill_up(self._home.database.with_name(f"{self._home.database.name}-wal"), LOG_BYTES)
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, StateError, OSError, Replaced):
            return
        finally:
            lock.close()

    def _copy_back(self, fail: Callable[[StateError], None]) -> None:
        """Passive: it waits for no reader. Under the writer's lock, so that no other process restarts the log
        meanwhile; then the next commit starts the log from its beginning, in a file that need not grow."""
        lock = FileLock(self._home.lock)
        try:
            if not lock.acquire(COPY_BACK_PATIENCE_S):
                self._copy_back_due = True
                return
            self._place.check()  # what is in the log belongs to another file
            if is_given(self._home.reserve):  # all of it still stands in the log, where records take less than copies
                return
            with self._upkeep, contextlib.closing(connect(self._home.database)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (sqlite3.Error, StateError, OSError, Replaced) as error:
            code = _code(error.__cause__ or error)
            if code == _FULL:  # all of it still stands in the log; the commit that finds no room closes what has run
                self._copy_back_due = True
            elif code not in _WAIT:
                fail(StateError(f"The journal's log could not be copied back: {error}."))
        finally:
            lock.close()


_INHERITED: list[sqlite3.Connection] = []


def _is_failed_sync(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) in _FAILED_SYNC


def _code(error: BaseException) -> int:
    """SQLite's primary result code; 1 for what Python's own layer raised."""
    code: int = getattr(error, "sqlite_errorcode", 1 if isinstance(error, sqlite3.Error) else 0)
    return code & 0xFF
