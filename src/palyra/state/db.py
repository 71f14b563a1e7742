"""The state folder of a home: one SQLite database, the installation's key, a lock. Created whole, opened checked.

Rules: the folder is made beside its place and renamed into it, so a hundred first starts at once agree on one key and
one journal, and a crash leaves nothing half made; a key or a folder that others could have touched is refused, and so
is a database that is not laid out as Palyra made it (state/shape). `read_home` creates, changes and refuses nothing:
auditors come with read-only media.

Not here: connections and versions (state/connection), commits (state/writer), the tables (state/schema).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from pathlib import Path

from palyra.errors import StateError
from palyra.journal.keys import Keys
from palyra.journal.lookup import TREE_SIZE
from palyra.model.reasons import SHORTAGES
from palyra.signing import NoteVerifier, SigningKey
from palyra.state.connection import (
    PATIENCE_S,
    check_kind,
    check_version,
    connect,
    is_writable,
    migrate,
    snapshot,
)
from palyra.state.forking import in_use
from palyra.state.identity import (
    NEXT_KEY_FILE,
    OtherKey,
    alone_with_keys,
    current_key,
    name_first_key,
    other_key,
    read_keys,
)
from palyra.state.keyfile import KEY_FILE, check_private, create_key, read_key, sync_folder
from palyra.state.lock import FileLock, NoLocks
from palyra.state.mark import check_mark, read_mark
from palyra.state.reserve import refill_reserve, restore_reserve
from palyra.state.schema import APPLICATION_ID, MIGRATIONS, PAGE_BYTES, Migration
from palyra.state.shape import check_strangers
from palyra.state.trouble import is_full, unusable
from palyra.values import dataclass

OLDEST_SQLITE = (3, 37)
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
        return self.holds_key if self.is_on_server else is_writable(self.database)


def read_home(root: Path) -> ReadHome:
    """The installation at `root` as it lies there, or `StateError`; it is never made."""
    state = root.absolute() / "state"
    if not (state / "palyra.db").is_file():
        raise StateError(f"There is no installation in {root}.", "Name its folder with --home.")
    try:
        return _look(root.absolute())
    except OtherKey:  # a change of keys may have been in the middle
        with contextlib.suppress(OSError, NoLocks), alone_with_keys(state):
            return _look(root.absolute())
        raise


def _look(root: Path) -> ReadHome:
    state = root / "state"
    try:
        with snapshot(state / "palyra.db") as connection:
            check_kind(connection, root)
            keys = read_keys(connection)
    except (sqlite3.Error, OSError) as error:
        raise unusable(state / "palyra.db", error) from error
    return ReadHome(root=root, keys=keys, holds_key=_holds_key(state, keys))


def _holds_key(state: Path, keys: Keys) -> bool:
    """Whether the newest key is there, perhaps still under the name it has while it is handed over to. Another one is
    refused: by a file of that name, with anything in it, the key of this home would not be asked for."""
    for name in (KEY_FILE, NEXT_KEY_FILE):
        try:
            if read_key(state / name).public == keys.newest.key:
                return True
        except StateError:
            if name == KEY_FILE or (state / name).exists():
                return False  # locked, or not to be read: what is read then says so
    raise other_key()


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
        _check_place(state / "palyra.db")
        had = read_mark(state)
        connection = connect(state / "palyra.db")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or (error.errno == errno.EIO and is_full(root.parent))
        hint = SHORTAGES.get(error.errno or 0, "Name another --home.")
        hint = "Free some space, or name another --home." if full else hint
        raise StateError(f"The state in {root} cannot be used: {error.strerror}.", hint) from error
    try:
        with in_use(state / "palyra.db"):
            check_strangers(connection, migrations)
            check_version(connection, root, migrations)
            check_mark(state, had=had, has=connection.execute(TREE_SIZE).fetchone()[0])
            keys, key = current_key(state, lambda: read_keys(connection), passphrase=passphrase)
    except sqlite3.Error as error:
        trouble = unusable(state / "palyra.db", error)
        connection.close()
        raise trouble from error
    except BaseException:
        connection.close()
        raise
    home = Home(root=root, key=key, keys=keys)
    restore_reserve(home.reserve)
    return home, connection


def _check_place(database: Path) -> None:
    """SQLite follows a link, and writes its log beside what it leads to: not where it is looked for and watched."""
    if database.is_symlink():
        raise StateError(
            f"{database} is a link: its log would lie elsewhere.",
            "Move the database itself there, or name the home where it lies with --home.",
        )


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
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, 0, migrations)
        name_first_key(connection, origin, key)
    finally:
        connection.close()
    sync_folder(folder)
    folder.rename(root / "state")
    sync_folder(root)
    for parent in root.parents:  # whoever made them: what is acknowledged goes with the folder around it
        with contextlib.suppress(OSError):
            sync_folder(parent)
