"""Connections to the one SQLite file: to write, to read a snapshot of it, to bring it up to date.

Rules: every connection that writes has the same settings, and what is acknowledged is on the disk; a reader changes
nothing, on a disk that cannot be written it reads a copy; a database from a newer Palyra is refused, an older one
migrated in one transaction after a backup. The file is opened by SQLite alone: closing any other handle on it would
drop SQLite's own locks.

Not here: the folder around it (state/db), commits (state/writer), the tables (state/schema).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from palyra.errors import StateError
from palyra.state.forking import in_use, note_opened
from palyra.state.keyfile import sync_folder
from palyra.state.lock import FileLock
from palyra.state.schema import APPLICATION_ID, MIGRATIONS, Migration
from palyra.state.trouble import is_full, unusable

PATIENCE_S = 30.0
BUSY_TIMEOUT_S = 2.0
READ_MAP_BYTES = 4 << 30
MAX_STATEMENTS = 512
"""More than Palyra has: none is ever compiled twice for one connection, whatever a console asks between two calls."""


def connect(database: Path) -> sqlite3.Connection:
    """A connection as every part of Palyra uses it; the file must exist."""
    note_opened(database)
    try:
        connection = sqlite3.connect(
            f"{database.as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=MAX_STATEMENTS,
        )
        for pragma in (
            "synchronous = FULL",  # NORMAL loses acknowledged commits in a power cut
            "fullfsync = ON",
            "checkpoint_fullfsync = ON",
            "wal_autocheckpoint = 0",  # off the commit path, see state/writer
            "foreign_keys = ON",
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        raise unusable(database, error) from error
    return connection


@contextlib.contextmanager
def of_one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """What is read inside belongs together, whoever commits meanwhile; in a transaction it does anyway."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        with contextlib.suppress(sqlite3.Error):  # a damaged page may have ended it
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def snapshot(database: Path) -> Iterator[sqlite3.Connection]:
    """One unchanging view of the database for long reads, while others go on writing."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(in_use(database))
        try:
            connection = _connect_to_look(database, stack)
        except (sqlite3.Error, OSError) as error:
            raise unusable(database, error) from error
        stack.callback(connection.close)
        if 0 < _version(connection) < len(MIGRATIONS):
            connection = _migrated_copy(connection, stack)
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA mmap_size = {READ_MAP_BYTES}").fetchall()  # long reads without a copy of each page
        connection.execute("BEGIN")
        yield connection


def is_writable(database: Path) -> bool:
    return os.access(database, os.W_OK) and os.access(database.parent, os.W_OK)


def _connect_to_look(database: Path, stack: contextlib.ExitStack) -> sqlite3.Connection:
    if not is_writable(database):
        return _connect_to_read(database, stack)
    try:
        return connect(database)
    except StateError:
        if not is_full(database.parent):  # a full disk has no room for the log's index, but can be read
            raise
        return _connect_to_read(database, stack)


def _connect_to_read(database: Path, stack: contextlib.ExitStack) -> sqlite3.Connection:
    """On a folder or disk that cannot be written. A log that was not copied back needs an index beside it, so then
    a copy elsewhere is read; without a log the file is all there is and cannot change."""
    uri = f"{database.as_uri()}?mode=ro"
    with contextlib.suppress(sqlite3.OperationalError):
        return _probed(uri)
    log = database.with_name(f"{database.name}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return _probed(f"{uri}&immutable=1")
    import shutil

    folder = _elsewhere(stack)
    for file in (database, log):
        shutil.copyfile(file, folder / file.name)
    return connect(folder / database.name)


def _elsewhere(stack: contextlib.ExitStack) -> Path:
    import tempfile  # with shutil too heavy for every start

    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palyra-read-")))


def _migrated_copy(connection: sqlite3.Connection, stack: contextlib.ExitStack) -> sqlite3.Connection:
    """A reader changes nothing: an older database is brought up to date elsewhere."""
    folder = _elsewhere(stack)
    copy = sqlite3.connect(folder / "palyra.db", isolation_level=None, check_same_thread=False)
    stack.callback(copy.close)
    connection.backup(copy)
    migrate(copy, _version(copy), MIGRATIONS)
    return copy


def _probed(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


# ── versions ─────────────────────────────────────────────────────────────────


def check_kind(connection: sqlite3.Connection, root: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StateError(f"{root / 'state' / 'palyra.db'} is not a database of Palyra.", "Move it away.")


def check_version(connection: sqlite3.Connection, root: Path, migrations: tuple[Migration, ...]) -> None:
    check_kind(connection, root)
    version = _version(connection)
    if version < len(migrations):
        lock = FileLock(root / "state" / "writer.lock")
        if not lock.acquire(PATIENCE_S):
            raise StateError("The database must be migrated, and another process holds it.", "Stop that process first.")
        try:
            version = _version(connection)
            if version < len(migrations):
                _backup(connection, root / "state", version)
                migrate(connection, version, migrations)
                version = len(migrations)
        finally:
            lock.close()
    if version > len(migrations):
        raise StateError(
            f"The database has version {version}; this Palyra knows up to {len(migrations)}.",
            "Use the newer Palyra that wrote it, or name another --home.",
        )


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _backup(connection: sqlite3.Connection, state: Path, version: int) -> None:
    target = state / f"palyra.db.v{version}.backup"
    temporary = state / f".{target.name}.{os.urandom(8).hex()}"
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(temporary)) as copy:
        connection.backup(copy)
    temporary.rename(target)
    sync_folder(state)


def migrate(connection: sqlite3.Connection, version: int, migrations: tuple[Migration, ...]) -> None:
    """All steps or none: one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for at in range(version, len(migrations)):
            for statement in migrations[at]:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?)", (at + 1,))
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
