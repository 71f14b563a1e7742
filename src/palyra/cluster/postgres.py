"""The state on a PostgreSQL server: one order of entries for every daemon, by a lock that a transaction holds.

Rules: a turn to write is `pg_advisory_xact_lock` on this journal's name, taken first and given back by the commit or
the rollback alone, so a daemon that dies gives it back too; commits are synchronous; a connection that was lost
stops this writer for good, because nobody knows whether its last commit was kept. Those who follow the journal are
notified by the commit itself (`LISTEN palyra`).

Not here: the tables and keys (cluster/opening), what is written (state/writer).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg.adapt import Loader

from palyra.cluster import dialect
from palyra.errors import StateError
from palyra.state.database import Cursor, Trouble

CHANNEL = "palyra"
_BEGIN = """BEGIN; SET LOCAL lock_timeout = '10ms';
            SELECT pg_advisory_xact_lock(hashtextextended('palyra journal ' || current_schema(), 0));
            SET LOCAL lock_timeout = 0; SAVEPOINT turn"""
_FULL = "53100"
_LOST = ("08", "57P")
"""SQLSTATE classes: the connection failed, the server was told to stop."""


class _Whole(Loader):  # type: ignore[misc]  # the extra may be absent when types are checked
    """Sums are NUMERIC on a server; ours are whole."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection as every part of Palyra uses it."""
    try:
        connection = psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="palyra")
        connection.adapters.register_loader("numeric", _Whole)
        for setting in ("synchronous_commit = on", "default_transaction_isolation = 'read committed'"):
            connection.execute(f"SET {setting}")
    except psycopg.Error as error:
        raise StateError(
            f"The cluster's database cannot be reached: {_words(error)}.", "Check [cluster] database."
        ) from error
    return connection


class PostgresDatabase:
    taken: type[Exception] = psycopg.errors.UniqueViolation

    def __init__(self, url: str, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._url = url
        self.connection = connection

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> Cursor:
        cursor: Cursor = self.connection.execute(dialect.query(sql), tuple(map(dialect.value, parameters)))
        return cursor

    def read(self, sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            return self.execute(sql, parameters).fetchall()
        except psycopg.Error as error:
            raise StateError(f"The cluster's database cannot be read: {_words(error)}.") from error

    def version(self) -> int | None:
        return None

    # ── turns ──

    def try_begin(self) -> bool:
        """The wait is short, because a loop stands still for it, and in the server's queue, because whoever only tries
        is overtaken again and again by those who write much."""
        try:
            self.connection.execute(_BEGIN)
        except psycopg.errors.LockNotAvailable:
            self.connection.execute("ROLLBACK")
            return False
        return True

    def begin_again(self) -> None:
        """To a point after the lock was taken: a rollback of the whole would give the turn away."""
        self.connection.execute("ROLLBACK TO turn")

    def commit(self) -> None:
        self.connection.execute(f"NOTIFY {CHANNEL}; COMMIT")

    def let_go(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.connection.execute("ROLLBACK")

    def trouble(self, error: BaseException) -> Trouble:
        if not isinstance(error, psycopg.Error):
            return Trouble.OF_THE_WORK
        state = error.sqlstate or ""
        if self.connection.closed or state.startswith(_LOST):
            return Trouble.STOP
        if state == _FULL:
            return Trouble.FULL
        return Trouble.OF_THE_WORK

    def give_reserve(self) -> bool:
        return False

    def who_holds(self) -> str:
        return "Find it with: SELECT pid FROM pg_locks WHERE locktype = 'advisory'"

    def forked(self) -> None:
        """The parent's connection is neither used nor closed: both sides would speak on one socket."""
        _INHERITED.append(self.connection)
        self.connection = connect(self._url)

    def close(self, *, is_sound: bool) -> None:
        self.connection.close()

    # ── upkeep: the server's own ──

    def committed(self, *, before: int, after: int, bytes_written: int) -> None:
        """Followers were notified by the transaction itself."""

    def look_after(self, loop: asyncio.AbstractEventLoop | None, fail: Callable[[StateError], None]) -> None:
        """Nothing: the server keeps its own log."""


@contextlib.contextmanager
def transaction(connection: psycopg.Connection[tuple[Any, ...]], *, lock: str) -> Iterator[None]:
    """For setting up: waits for others that set up the same."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s || current_schema(), 0))", (lock,))
        yield


_INHERITED: list[psycopg.Connection[tuple[Any, ...]]] = []


def _words(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
