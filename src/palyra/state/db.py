"""The state folder of a home: one SQLite database, the installation's key, a lock. Created whole, opened checked.

Rules: the folder is made beside its place and renamed into it, so a hundred first starts at once agree on one key and
one journal, and a crash leaves nothing half made; a database from a newer Palyra is refused, an older one migrated
after a backup; a key or a folder that others could have touched is refused, and so is a database with triggers or
views, which Palyra never makes. `read_home` creates, changes and refuses nothing: auditors come with read-only media.

The database file is opened by SQLite alone: closing any other handle on it would drop SQLite's own locks.
Not here: commits (state/writer), the tables (state/schema).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from palyra.errors import StateError
from palyra.journal.keys import Keys
from palyra.journal.lookup import TREE_SIZE
from palyra.signing import NoteVerifier, SigningKey
from palyra.state.identity import KEY_FILE, NEXT_KEY_FILE, current_key, name_first_key, other_key, read_keys
from palyra.state.keyfile import check_private, create_key, read_key, sync_folder
from palyra.state.lock import FileLock
from palyra.state.mark import check_mark, read_mark
from palyra.state.reserve import refill_reserve
from palyra.state.schema import APPLICATION_ID, MIGRATIONS, Migration
from palyra.state.trouble import is_full, unusable
from palyra.values import dataclass

OLDEST_SQLITE = (3, 37)
PATIENCE_S = 30.0
BUSY_TIMEOUT_S = 2.0
READ_MAP_BYTES = 4 << 30


NOWHERE = "/nonexistent"
"""The folder of sealed entries where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folders:
    """Where things are in a home, and by which keys they are read."""

    root: Path
    keys: Keys
    """The journal's keys."""
    sealed_in: str = ""
    """The folder of sealed entries; empty: the home's own."""

    @property
    def verifier(self) -> NoteVerifier:
        return self.keys.newest

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def database(self) -> Path:
        return self.state / "palyra.db"

    @property
    def lock(self) -> Path:
        return self.state / "writer.lock"

    @property
    def segments(self) -> Path:
        return Path(self.sealed_in) if self.sealed_in else self.state / "segments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home(_Folders):
    """A home whose state was found sound: where it is, and as whom it signs."""

    key: SigningKey
    """The newest of its keys."""

    @property
    def origin(self) -> str:
        """The journal's name, unique to this installation."""
        return self.keys.newest.name

    @property
    def reserve(self) -> Path:
        return self.state / "reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHome(_Folders):
    """A home to read from: nothing is created, and the private key is not needed."""

    holds_key: bool
    """The key file was read and fits; otherwise the public key is the one the database names."""
    is_on_server: bool = False

    @property
    def is_writable(self) -> bool:
        return self.holds_key if self.is_on_server else _is_writable(self.database)


def read_home(root: Path) -> ReadHome:
    """The installation at `root` as it lies there, or `StateError`; it is never made."""
    state = root.absolute() / "state"
    if not (state / "palyra.db").is_file():
        raise StateError(f"There is no installation in {root}.", "Name its folder with --home.")
    try:
        with snapshot(state / "palyra.db") as connection:
            _check_kind(connection, root)
            keys = read_keys(connection)
    except (sqlite3.Error, OSError) as error:
        raise unusable(state / "palyra.db", error) from error
    try:
        key = read_key(state / KEY_FILE)
    except StateError:
        key = None
    if key is not None and key.public != keys.newest.key and not (state / NEXT_KEY_FILE).exists():
        raise other_key()
    return ReadHome(root=root.absolute(), keys=keys, holds_key=key is not None)


def open_home(
    root: Path, *, migrations: tuple[Migration, ...] = MIGRATIONS, passphrase: bytes | None = None
) -> tuple[Home, sqlite3.Connection]:
    """The home at `root`, created when there is none, and a connection to its database."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StateError(f"SQLite {sqlite3.sqlite_version} is too old; Palyra needs 3.37 or newer.")
    try:
        root = root.absolute()
        state = root / "state"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_root(root)
        if not _has_state(state):
            _install(root, migrations)
        check_private(state, state.lstat(), is_kind=stat.S_ISDIR)
        had = read_mark(state)
        connection = connect(state / "palyra.db")
    except OSError as error:
        hint = "Free some space, or name another --home." if is_full(root.parent) else "Name another --home."
        raise StateError(f"The state in {root} cannot be used: {error.strerror}.", hint) from error
    try:
        if made := strangers(connection):
            raise StateError(
                f"The database holds {made[0]}, which Palyra did not make: it could change what is recorded.",
                "Run: palyra journal verify",
            )
        _check_version(connection, root, migrations)
        check_mark(state, had=had, has=connection.execute(TREE_SIZE).fetchone()[0])
        keys = read_keys(connection)
        key = current_key(state, keys, passphrase=passphrase)
    except sqlite3.Error as error:
        trouble = unusable(state / "palyra.db", error)
        connection.close()
        raise trouble from error
    except BaseException:
        connection.close()
        raise
    home = Home(root=root, key=key, keys=keys)
    if not home.reserve.exists():  # it was given back once; a disk that is still full is no reason to stop here
        with contextlib.suppress(OSError):
            refill_reserve(home.reserve)
    return home, connection


def connect(database: Path) -> sqlite3.Connection:
    """A connection as every part of Palyra uses it; the file must exist."""
    try:
        connection = sqlite3.connect(
            f"{database.as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
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
def snapshot(database: Path) -> Iterator[sqlite3.Connection]:
    """One unchanging view of the database for long reads, while others go on writing."""
    with contextlib.ExitStack() as stack:
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


def strangers(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Triggers and views: they run or answer in a table's place, and no migration makes any."""
    sql = "SELECT type || ' ' || name FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY 1"
    return tuple(str(row[0]) for row in connection.execute(sql))


def _is_writable(database: Path) -> bool:
    return os.access(database, os.W_OK) and os.access(database.parent, os.W_OK)


def _connect_to_look(database: Path, stack: contextlib.ExitStack) -> sqlite3.Connection:
    if not _is_writable(database):
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
    _migrate(copy, _version(copy), MIGRATIONS)
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


# ── the first start ──────────────────────────────────────────────────────────


def _has_state(state: Path) -> bool:
    """An empty folder counts as none: the new one is renamed over it."""
    try:
        return bool(os.listdir(state))
    except FileNotFoundError:
        return False


def check_root(root: Path) -> None:
    """Whoever may write the home may move the state away, and the history with it."""
    found = root.stat()
    if found.st_uid != os.geteuid():
        raise StateError(
            f"The home {root} belongs to user {found.st_uid}, not to {os.geteuid()}.",
            "Use another folder with --home, or start Palyra as that user.",
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise StateError(f"The home {root} can be written by other users.", f"Run: chmod go-w '{root}'")


def _install(root: Path, migrations: tuple[Migration, ...]) -> None:
    lock = FileLock(root)
    if not lock.acquire(PATIENCE_S):
        raise StateError(f"Another process has been setting up {root} for {PATIENCE_S:.0f} s.", "Try again.")
    try:
        if not _has_state(root / "state"):
            for leftover in root.glob("state.new-*"):
                import shutil

                shutil.rmtree(leftover)
            _build(root, migrations)
    finally:
        lock.close()


def _build(root: Path, migrations: tuple[Migration, ...]) -> None:
    folder = root / f"state.new-{os.urandom(8).hex()}"
    folder.mkdir(mode=0o700)
    key = create_key(folder / KEY_FILE)
    for name in ("palyra.db", "writer.lock", "reserve"):
        os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    refill_reserve(folder / "reserve")
    origin = f"palyra.local/{os.urandom(8).hex()}"
    connection = connect(folder / "palyra.db")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        _migrate(connection, 0, migrations)
        name_first_key(connection, origin, key)
    finally:
        connection.close()
    sync_folder(folder)
    folder.rename(root / "state")
    sync_folder(root)


# ── every start ──────────────────────────────────────────────────────────────


def _check_kind(connection: sqlite3.Connection, root: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StateError(f"{root / 'state' / 'palyra.db'} is not a database of Palyra.", "Move it away.")


def _check_version(connection: sqlite3.Connection, root: Path, migrations: tuple[Migration, ...]) -> None:
    _check_kind(connection, root)
    version = _version(connection)
    if version < len(migrations):
        lock = FileLock(root / "state" / "writer.lock")
        if not lock.acquire(PATIENCE_S):
            raise StateError("The database must be migrated, and another process holds it.", "End that process first.")
        try:
            version = _version(connection)
            if version < len(migrations):
                _backup(connection, root / "state", version)
                _migrate(connection, version, migrations)
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


def _migrate(connection: sqlite3.Connection, version: int, migrations: tuple[Migration, ...]) -> None:
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
