"""Where the stores' tests keep their rows: in SQLite, or on a PostgreSQL server (`make test-cluster`)."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.journal.audit import Report
from palyra.journal.store import verify_journal
from palyra.state import connection as connections
from palyra.state.db import Home
from palyra.state.writer import Writer

WHERE = os.environ.get("PALYRA_TEST_STORES", "sqlite")
on_sqlite = pytest.mark.skipif(WHERE != "sqlite", reason="about SQLite's file")


def open_writer(root: Path) -> Writer:
    if WHERE == "sqlite":
        return Writer.open(root)
    from palyra.cluster import opening
    from tests.postgres import url_of

    return opening.open_writer(url_of(root), root, segments=str(root / "state" / "segments"))


def audit(home: Home, *, known: tuple[str, ...] = (), alive: bool = False, every: bool = False) -> Report:
    """The whole audit, as `palyra journal verify` runs it."""
    if WHERE == "sqlite":
        return verify_journal(home, is_alive=lambda _: alive, known=known, every_signature=every)
    from palyra.cluster.verifying import verify_cluster
    from tests.postgres import url_of

    return verify_cluster(
        url_of(home.root),
        home.root,
        is_alive=lambda _: alive,
        known=known,
        every_signature=every,
        segments=str(home.segments),
    )


@contextmanager
def snapshot(home: Home) -> Iterator[Any]:
    """One unchanging view, for `JournalRows`."""
    if WHERE == "sqlite":
        with connections.snapshot(home.database) as connection:
            yield connection
        return
    from palyra.cluster import verifying
    from tests.postgres import url_of

    with verifying.snapshot(url_of(home.root)) as (view, _):
        yield view


@contextmanager
def tampering(home: Home) -> Iterator[Any]:
    """The rows in the hands of somebody who has the database; what was done is committed."""
    if WHERE == "sqlite":
        with closing(sqlite3.connect(home.database)) as connection, connection:
            yield connection
        return
    import psycopg

    from palyra.cluster import dialect
    from tests.postgres import url_of

    class Hands:
        def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> Any:
            return connection.execute(dialect.query(spelled(dialect.definition(sql))), parameters)

    with psycopg.connect(url_of(home.root)) as connection:
        connection.execute(_REPLACE)
        yield Hands()


_REPLACE = """CREATE OR REPLACE FUNCTION replace(bytea, text, text) RETURNS bytea LANGUAGE sql AS
              $$ SELECT convert_to(replace(convert_from($1, 'UTF8'), $2, $3), 'UTF8') $$"""


def spelled(sql: str) -> str:
    """What tampering says in SQLite's words alone."""
    if (trigger := re.fullmatch(r"CREATE TRIGGER (\w+) (.*) BEGIN (.*;) END", sql)) is not None:
        name, when, work = trigger.groups()
        body = f"$$ BEGIN {work} RETURN NULL; END $$"
        made = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS {body}"
        return f"{made}; CREATE TRIGGER {name} {when} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
    sql = re.sub(r"\bx'([0-9a-f]*)'", r"'\\x\1'::bytea", sql)
    sql = re.sub(r"\bchar\(", "chr(", sql)
    sql = re.sub(r"\bzeroblob\((\d+)\)", r"decode(repeat('00', \1), 'hex')", sql)
    return f"{sql} CASCADE" if sql.startswith("DROP TABLE") else sql
