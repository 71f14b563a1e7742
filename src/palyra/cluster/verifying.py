"""The audit of a cluster's journal: the rows of one moment on the server, judged as those of a file are."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from palyra.cluster import dialect
from palyra.cluster.leases import AGE, LEASE_MS
from palyra.cluster.opening import read_keys, strangers
from palyra.cluster.postgres import connect
from palyra.errors import StateError
from palyra.journal.audit import Report
from palyra.model.record import Owner
from palyra.state.database import Cursor
from palyra.state.db import NOWHERE, ReadHome
from palyra.state.keyfile import KEY_FILE
from palyra.state.rows import JournalRows
from palyra.state.verifying import Progress, Question, audit_rows

ROWS_AT_ONCE = 2000


class Snapshot:
    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        self._names = itertools.count()

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> Cursor:
        cursor: Cursor = self._connection.execute(dialect.query(sql), parameters)
        return cursor

    def rows(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return self.execute(sql, parameters).fetchall()
        except psycopg.Error as error:
            raise StateError(
                f"The cluster's database cannot be read: {error}.", "Run: palyra journal verify"
            ) from error

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """A table that may be larger than memory, a few rows at a time."""
        with self._connection.cursor(name=f"palyra_{next(self._names)}") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            yield from cursor.execute(dialect.query(sql))


@contextlib.contextmanager
def snapshot(url: str) -> Iterator[tuple[Snapshot, psycopg.Connection[tuple[Any, ...]]]]:
    """One unchanging view, while others go on writing."""
    connection = connect(url)
    try:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield Snapshot(connection), connection
    finally:
        connection.close()


def verify_cluster(
    url: str,
    root: Path,
    *,
    is_alive: Callable[[Owner], bool],
    known: Sequence[str] = (),
    every_signature: bool = False,
    progress: Progress | None = None,
    segments: str = "",
) -> Report:
    """The whole audit, as `palyra journal verify` runs it; `root` is the folder of the daemon that asks, `segments`
    that of sealed entries."""
    with snapshot(url) as (rows, connection):
        home = server_home(root, connection, segments)
        question = Question(
            home=home,
            is_alive=lambda owner: is_alive(owner) or _says_it_lives(rows, owner),
            known=known,
            every_signature=every_signature,
            progress=progress,
        )
        return audit_rows(question, JournalRows(rows, home.segments), strangers(connection), unreadable=psycopg.Error)


def server_home(root: Path, connection: psycopg.Connection[tuple[Any, ...]], segments: str) -> ReadHome:
    """The journal on the server, as the daemon in `root` reads it."""
    return ReadHome(
        root=root,
        keys=read_keys(connection),
        holds_key=(root / "state" / KEY_FILE).is_file(),
        sealed_in=segments or NOWHERE,
        is_on_server=True,
    )


def _says_it_lives(rows: Snapshot, owner: Owner) -> bool:
    """A daemon of another machine, by the server's clock."""
    sql = f"SELECT 1 FROM daemons WHERE boot_id = ? AND pid = ? AND start_ticks = ? AND {AGE} < ?"  # noqa: S608
    return rows.execute(sql, (owner.boot_id, owner.pid, owner.start_ticks, LEASE_MS)).fetchone() is not None
