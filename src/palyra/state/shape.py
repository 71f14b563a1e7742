"""Whether the database is laid out as the migrations made it: what is in it beside that could change what is recorded.

A trigger or a view answers in a table's place; so does a table whose text somebody changed: a column that is computed
from the entry and must not be null, with a conflict that is ignored, drops the entries it does not like without an
error, after their receipts were signed. A unique index that is gone lets in what it kept out.

Mostly one digest over the layout is compared. Only where it differs (an older version, or somebody else's work) is the
layout made again in memory to name the difference. Tables of somebody else's own, beside ours, hurt nobody. It is
looked at when a home is opened, and in a running process with the first commit after it was changed (state/sqlite).
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3

from palyra.errors import StateError
from palyra.state.connection import of_one_moment
from palyra.state.schema import MIGRATIONS, Migration

LAYOUT_SHA256 = "dc137580a8eee2aded1c29c8b42b24584083b97df5cfa530f51b275cb1969697"
"""Of the newest migrations; a test says what it is."""
_LAYOUT = """SELECT type, name, tbl_name, CAST(sql AS TEXT) FROM sqlite_master
             WHERE sql IS NOT NULL AND NOT (type = 'table' AND name IN
                 ('sqlite_stat1', 'sqlite_stat4', 'search_words_data', 'search_words_idx', 'search_words_content',
                  'search_words_docsize', 'search_words_config'))
             ORDER BY type, name"""
"""Without what SQLite makes by itself: indexes of keys (they have no text), statistics, tables of a full-text one."""

MAX_LINES = 20
Part = tuple[str, str]
"""table, index, trigger or view; and its name"""


def strangers(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> tuple[str, ...]:
    """What no migration made, each named so that "The database holds …" can be said of it. As of one moment: another
    process may be migrating."""
    with of_one_moment(connection):
        return _strangers(connection, migrations)


def _strangers(connection: sqlite3.Connection, migrations: tuple[Migration, ...]) -> tuple[str, ...]:
    rows = connection.execute(_LAYOUT).fetchall()
    if _digest(rows) == LAYOUT_SHA256:
        return ()
    found = _parts(rows)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 0 < version <= len(migrations):  # somebody else's, and refused as such; or newer, of which little is known
        return tuple(f"{kind} {name}" for kind, name in sorted(found) if kind in ("trigger", "view"))
    made = _made_by(migrations[:version])
    tables = {name for kind, name in made if kind == "table"}
    more = [part for part, (of, _) in found.items() if part not in made and (part[0] != "table" and of in tables)]
    more += [part for part in found if part not in made and part[0] in ("trigger", "view") and part not in more]
    other = [part for part in made if part in found and made[part] != found[part]]
    gone = [part for part in made if part not in found]
    return (
        *(f"{kind} {name}" for kind, name in sorted(more)),
        *(f"{kind} {name} in another form" for kind, name in sorted(other)),
        *(f"a layout without {kind} {name}" for kind, name in sorted(gone)),
    )


def lying_indexes(connection: sqlite3.Connection) -> tuple[str, ...]:
    """What is wrong with the tables that have indexes, and with those: by an index a row can be kept from whoever asks
    for it, or shown to nobody else. It costs a look-up for each row and index. The search index is no evidence."""
    sql = "SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'index' AND tbl_name NOT LIKE 'search%' ORDER BY 1"
    found: list[str] = []
    for (table,) in connection.execute(sql).fetchall():
        quoted = table.replace('"', '""')
        lines = connection.execute(f'PRAGMA integrity_check("{quoted}")').fetchmany(MAX_LINES)
        found += [str(line) for (line,) in lines if line != "ok"]
    return tuple(found)


def check_strangers(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    if made := strangers(connection, migrations):
        raise StateError(
            f"The database contains {made[0]}, which Palyra did not make: it could change what is recorded.",
            "Run: palyra journal verify",
        )


def layout_of(migrations: tuple[Migration, ...]) -> str:
    """The digest of what these make."""
    return _digest([(*part, *rest) for part, rest in sorted(_made_by(migrations).items())])


def _made_by(migrations: tuple[Migration, ...]) -> dict[Part, Part]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for migration in migrations:
            for statement in migration:
                empty.execute(statement)
        return _parts(empty.execute(_LAYOUT).fetchall())


def _parts(rows: list[tuple[str, str, str, str]]) -> dict[Part, Part]:
    """(kind, name) → (its table, its text)."""
    return {(kind, name): (of, text) for kind, name, of, text in rows}


def _digest(rows: list[tuple[str, str, str, str]]) -> str:
    return hashlib.sha256("\0".join(text for row in rows for text in row).encode("utf-8", "surrogatepass")).hexdigest()
