"""A cluster's state on its server: made once by whoever comes first, then opened, checked and migrated by all.

Rules: every daemon of a cluster signs with the cluster's one key, which lies in each daemon's own home and never on
the server; a daemon whose key is another one does not start. Migrations are those of SQLite, in the server's spelling,
under a lock; a newer schema than this Palyra knows is refused, and so is one with triggers, rules or views, which
Palyra never makes. Not here: commits (cluster/postgres).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import psycopg

from palyra.cluster import dialect
from palyra.cluster.postgres import FORGET_TURNS, TURNS, PostgresDatabase, connect, transaction
from palyra.errors import StateError
from palyra.journal.keys import Keys
from palyra.signing import SigningKey
from palyra.state.db import NOWHERE, Home, check_root
from palyra.state.identity import current_key, keys_of, named_first
from palyra.state.keyfile import KEY_FILE, check_private, create_key, sync_folder
from palyra.state.lock import FileLock
from palyra.state.schema import MIGRATIONS, Migration
from palyra.state.writer import Writer

_STRANGERS = """SELECT 'trigger ' || tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
                WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace
                UNION ALL SELECT 'view ' || viewname FROM pg_views WHERE schemaname = current_schema()
                UNION ALL SELECT 'rule ' || rulename FROM pg_rules WHERE schemaname = current_schema()
                ORDER BY 1"""


def open_writer(
    url: str,
    root: Path,
    *,
    migrations: tuple[Migration, ...] = MIGRATIONS,
    passphrase: bytes | None = None,
    segments: str = "",
) -> Writer:
    """The cluster's writer for this daemon, whose own folder is `root`; `segments` is the folder of sealed entries."""
    connection = connect(url)
    try:
        refuse_strangers(connection)
        with transaction(connection, lock="palyra setup "):
            _migrate(connection, migrations)
            _name_key(connection, root)
        keys, key = current_key(_state(root), lambda: read_keys(connection), passphrase=passphrase)
    except psycopg.Error as error:
        connection.close()
        raise StateError(f"The cluster's database cannot be used: {error}.", "Check [cluster] database.") from error
    except BaseException:
        connection.close()
        raise
    return Writer(
        Home(root=root.absolute(), key=key, keys=keys, sealed_in=segments or NOWHERE),
        PostgresDatabase(url, connection, refuse_strangers),
    )


def read_keys(connection: psycopg.Connection[tuple[Any, ...]]) -> Keys:
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    return keys_of(meta, connection.execute("SELECT entry, vkey FROM keys ORDER BY entry").fetchall())


def refuse_strangers(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    if made := strangers(connection):
        raise StateError(
            f"The cluster's database contains {made[0]}, which Palyra did not make: it could change what is recorded.",
            "Drop it, and verify the journal.",
        )


def strangers(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[str, ...]:
    return tuple(str(row[0]) for row in connection.execute(_STRANGERS))


def _state(root: Path) -> Path:
    return root.absolute() / "state"


def _migrate(connection: psycopg.Connection[tuple[Any, ...]], migrations: tuple[Migration, ...]) -> None:
    """All steps or none."""
    if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
        for statement in dialect.FACE:
            connection.execute(statement)
    for statement in (TURNS, FORGET_TURNS):
        connection.execute(statement)
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    version = row[0] if row is not None else 0
    if version > len(migrations):
        raise StateError(
            f"The cluster's database has version {version}; this Palyra knows up to {len(migrations)}.",
            "Use the newer Palyra that wrote it.",
        )
    for at in range(version, len(migrations)):
        for statement in migrations[at]:
            connection.execute(dialect.definition(statement))
        connection.execute("INSERT INTO migrations VALUES (%s)", (at + 1,))
    connection.execute("UPDATE schema_version SET version = %s", (len(migrations),))
    for statement in dialect.KEPT_UP:
        connection.execute(statement)


def _name_key(connection: psycopg.Connection[tuple[Any, ...]], root: Path) -> None:
    """The first daemon's key becomes the cluster's."""
    if connection.execute("SELECT 1 FROM meta WHERE name = 'vkey'").fetchone():
        if not (_state(root) / KEY_FILE).exists():
            raise StateError(
                f"This daemon does not hold the cluster's key: {_state(root) / KEY_FILE} is missing.",
                "Copy state/installation.key from another daemon of the cluster, readable only by its owner.",
            )
        return
    key = _ensure_key(root)
    for statement, values in named_first(f"palyra.cluster/{os.urandom(8).hex()}", key):
        connection.execute(dialect.query(statement), values)


def _ensure_key(root: Path) -> SigningKey:
    from palyra.state.keyfile import read_key

    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_root(root)
    lock = FileLock(root)
    lock.acquire(30.0)
    try:
        state = _state(root)
        state.mkdir(mode=0o700, exist_ok=True)
        check_private(state, state.lstat(), is_kind=stat.S_ISDIR)
        if (state / KEY_FILE).exists():
            return read_key(state / KEY_FILE)
        key = create_key(state / KEY_FILE)
        sync_folder(state)
        return key
    finally:
        lock.close()
