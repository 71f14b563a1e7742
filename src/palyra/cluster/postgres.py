"""The state on a PostgreSQL server: one order of entries for every daemon, by a lock that a transaction holds.

Rules: a turn to write is `pg_advisory_xact_lock` on this journal's name, taken first and given back by the commit or
the rollback alone, so a daemon that dies gives it back too, and one that stands still in its turn is cut off by the
server; commits are synchronous; a connection that was lost is made anew in a thread, because the loop must not stand
still while a server is away. Those who follow the journal are notified by the commit itself (`LISTEN palyra`).

Not here: the tables and keys (cluster/opening), what is written (state/writer).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg.adapt import Loader

from palyra.cluster import dialect
from palyra.cluster.sending import Sending
from palyra.errors import StateError
from palyra.state.database import Cursor, InVain, Trouble

log = logging.getLogger("palyra.cluster")
CHANNEL = "palyra"
Check = Callable[["psycopg.Connection[tuple[Any, ...]]"], None]
_BEGIN = """BEGIN; SET LOCAL lock_timeout = '10ms';
            SELECT pg_advisory_xact_lock(hashtextextended('palyra journal ' || current_schema(), 0));
            SET LOCAL lock_timeout = 0; SAVEPOINT turn"""
_FULL = "53100"
_LOST = ("08", "57P", "25006", "25P03")
"""SQLSTATE: the connection failed, the server was told to stop, it is a standby now, it cut us off."""
_BROKEN = ("58", "XX")
"""The server's own disk or files."""
_KEEP_TURN = """INSERT INTO turns VALUES (?, ?, now())
                ON CONFLICT (writer) DO UPDATE SET turn = excluded.turn, at = excluded.at"""
TURNS = """CREATE TABLE IF NOT EXISTS turns (writer TEXT COLLATE "C" PRIMARY KEY, turn BIGINT NOT NULL,
                                              at TIMESTAMPTZ NOT NULL) WITH (fillfactor = 50)"""
"""The last turn of each writer that was kept."""
FORGET_TURNS = "DELETE FROM turns WHERE at < now() - interval '30 days'"
TURN_S = 15
"""How long a turn may stand still before the server gives it to somebody else."""
_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 15_000}
"""A server that vanished without a word is noticed."""
MOMENT_S = 0.05
LOOK_AGAIN_S = 0.5


class _Whole(Loader):  # type: ignore[misc]  # the extra may be absent when types are checked
    """Sums are NUMERIC on a server; ours are whole."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection as every part of Palyra uses it."""
    try:
        told: dict[str, Any] = {"connect_timeout": 10, "application_name": "palyra", **_ALIVE}
        told |= psycopg.conninfo.conninfo_to_dict(url)
        connection = psycopg.connect(autocommit=True, **told)
        try:
            connection.adapters.register_loader("numeric", _Whole)
            for setting in ("synchronous_commit = on", "default_transaction_isolation = 'read committed'"):
                connection.execute(f"SET {setting}")
        except BaseException:
            connection.close()
            raise
    except psycopg.Error as error:
        raise StateError(
            f"The cluster's database cannot be reached: {_words(error)}.", "Check [cluster] database."
        ) from error
    return connection


class PostgresDatabase:
    is_far = True

    def __init__(
        self, url: str, connection: psycopg.Connection[tuple[Any, ...]], check: Check = lambda _: None
    ) -> None:
        """`check` refuses (`StateError`) a database that may not be written; every new connection passes it."""
        self.url, self._check = url, check
        self.connection = _ready(connection)
        self._sending: Sending | None = None
        """While it has the turn."""
        self._is_lost = False
        self._seeking = Seeking(self._connect)
        self._me, self._turn = os.urandom(16).hex(), 0

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> Cursor:
        if self._sending is not None:
            return self._sending.ask(sql, parameters)
        cursor: Cursor = self.connection.execute(dialect.query(sql), tuple(map(dialect.value, parameters)))
        return cursor

    def send(self, sql: str, parameters: tuple[object, ...], *, in_vain: InVain | None = None) -> None:
        assert self._sending is not None, "in a turn"
        self._sending.send(sql, parameters, in_vain=in_vain)

    def settle(self) -> None:
        assert self._sending is not None, "in a turn"
        self._sending.settle()

    def read(self, sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            try:
                return self.execute(sql, parameters).fetchall()
            except psycopg.OperationalError:
                if self._sending is not None or not self.connection.closed or not self.come_back():
                    raise
                return self.execute(sql, parameters).fetchall()
        except psycopg.Error as error:
            hint = "Palyra keeps trying to reconnect. Check the server, and database in [cluster]."
            raise StateError(f"The cluster's database cannot be read: {_words(error)}.", hint) from error

    def version(self) -> int | None:
        return None

    def moment(self) -> object:
        return None

    # ── turns ──

    def try_begin(self, first: str) -> bool:
        """The wait is short, because a loop stands still for it, and in the server's queue, because whoever only tries
        is overtaken again and again by those who write much."""
        try:
            answers = self.connection.execute(f"{_BEGIN}; {first}")
        except psycopg.errors.LockNotAvailable:
            self.connection.execute("ROLLBACK")
            return False
        while answers.nextset():
            pass
        self._sending = Sending(self.connection, {first: answers})
        return True

    def begin_again(self) -> None:
        """To a point after the lock was taken: a rollback of the whole would give the turn away."""
        self.execute("ROLLBACK TO turn")

    def commit(self, *, before: int, after: int, bytes_written: int) -> None:
        """With it goes which of this writer's turns it was: when no answer comes, that can be asked for."""
        sending = self._sending
        assert sending is not None, "in a turn"
        self._turn += 1
        sending.send(_KEEP_TURN, (self._me, self._turn))
        sending.send(f"NOTIFY {CHANNEL}")
        sending.send("COMMIT")
        sending.end()
        self._sending = None

    def was_kept(self) -> bool:
        row = self.execute("SELECT turn FROM turns WHERE writer = ?", (self._me,)).fetchone()
        return row is not None and row[0] == self._turn

    def let_go(self) -> None:
        sending, self._sending = self._sending, None
        with contextlib.suppress(psycopg.Error):
            if sending is not None:
                sending.end()
        with contextlib.suppress(psycopg.Error):
            if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.connection.execute("ROLLBACK")

    def trouble(self, error: BaseException) -> Trouble:
        if not isinstance(error, psycopg.Error):
            return Trouble.OF_THE_WORK
        state = error.sqlstate or ""
        if self.connection.closed or state.startswith(_LOST):
            self._is_lost = True
            return Trouble.LOST
        if state.startswith(_BROKEN):
            return Trouble.STOP
        if state == _FULL:
            return Trouble.FULL
        return Trouble.OF_THE_WORK

    def come_back(self) -> bool:
        """Never in a turn: what was begun there is gone, and the rest of it must not go on somewhere else."""
        if not self._is_lost and not self.connection.closed:
            return True
        found = self._seeking.found(wait_s=MOMENT_S)
        if found is None:
            return False
        self.connection.close()
        self.connection, self._is_lost = found, False
        return True

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = connect(self.url)
        try:
            self._check(connection)
            return _ready(connection)
        except BaseException:
            connection.close()
            raise

    def give_reserve(self) -> bool:
        return False

    def reopen(self) -> bool:
        """Only the next commit shows whether the server has room again; what failed was rolled back."""
        return True

    def sweep(self, statements: tuple[str, ...]) -> None:
        """What was removed stays in pages until they are used again: `VACUUM` lets them be."""
        try:
            with transaction(self.connection, lock="palyra journal "):
                for statement in statements:
                    self.connection.execute(dialect.query(statement))
            self.connection.execute("VACUUM blobs, openings, calls, entries, run_keys")
        except psycopg.Error as error:
            raise StateError(f"What was removed could not be vacuumed: {_words(error)}.", "Try again.") from error

    def who_holds(self) -> str:
        return "Find it with: SELECT pid FROM pg_locks WHERE locktype = 'advisory'"

    def forked(self) -> None:
        """The parent's connection is neither used nor closed: both sides would speak on one socket."""
        _INHERITED.append(self.connection)
        self._sending, self._is_lost, self._seeking = None, False, Seeking(self._connect)
        self._me, self._turn = os.urandom(16).hex(), 0
        self.connection = self._connect()

    def close(self, *, is_sound: bool) -> None:
        self._seeking.stop()
        self.connection.close()

    # ── upkeep: the server's own ──

    def look_after(self, loop: asyncio.AbstractEventLoop | None, fail: Callable[[StateError], None]) -> None:
        """Nothing: the server keeps its own log."""


@contextlib.contextmanager
def transaction(connection: psycopg.Connection[tuple[Any, ...]], *, lock: str) -> Iterator[None]:
    """For setting up: waits for others that set up the same."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s || current_schema(), 0))", (lock,))
        yield


class Seeking:
    """Looks for the server in a thread, one attempt at a time, and only when somebody asks."""

    def __init__(self, connect: Callable[[], psycopg.Connection[tuple[Any, ...]]]) -> None:
        self._connect = connect
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._found: psycopg.Connection[tuple[Any, ...]] | None = None
        self._not_before = 0.0
        self._stopped = False

    def found(self, *, wait_s: float) -> psycopg.Connection[tuple[Any, ...]] | None:
        with self._guard:
            if self._thread is None and self._found is None and time.monotonic() >= self._not_before:
                self._thread = threading.Thread(target=self._look, daemon=True, name="palyra-seeking")
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(wait_s)
        with self._guard:
            found, self._found = self._found, None
            return found

    def stop(self) -> None:
        with self._guard:
            self._stopped = True
            if self._found is not None:
                self._found.close()

    def _look(self) -> None:
        connection = None
        try:
            connection = self._connect()
        except (StateError, psycopg.Error) as error:
            log.warning("the journal's server is still unreachable: %s", error)
        with self._guard:
            self._thread = None
            if connection is None:
                self._not_before = time.monotonic() + LOOK_AGAIN_S
            if self._stopped and connection is not None:
                connection.close()
            else:
                self._found = connection


def _ready(connection: psycopg.Connection[tuple[Any, ...]]) -> psycopg.Connection[tuple[Any, ...]]:
    """For turns: one that stands still, its daemon stopped or its machine cut off, must not stop everybody."""
    connection.execute(f"SET idle_in_transaction_session_timeout = '{TURN_S}s'")
    return connection


_INHERITED: list[psycopg.Connection[tuple[Any, ...]]] = []


def _words(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
