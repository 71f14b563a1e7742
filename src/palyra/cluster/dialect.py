"""The stores' SQL, written once for SQLite, as PostgreSQL reads it.

Stores keep to what both understand (`ON CONFLICT`, `RETURNING`, `count(*) FILTER`); what is left is spelling: `?` for
values, the names of types, and the few statements of the schema that are SQLite's alone. A migration needs no second
text unless it makes a virtual table. Text is compared by its bytes, as SQLite does. Pure; no connection here.
"""

from __future__ import annotations

import re
from functools import lru_cache

_TYPES = (
    (re.compile(r"\bINTEGER PRIMARY KEY\b"), "BIGINT PRIMARY KEY"),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (re.compile(r"\bTEXT\b"), 'TEXT COLLATE "C"'),
    (re.compile(r"\)\s*STRICT\b(\s*,\s*WITHOUT ROWID)?\s*$"), ")"),
    (re.compile(r"\bx''"), "''::bytea"),
)
_WORDS = "CREATE TABLE search_words (rowid BIGINT PRIMARY KEY, words TEXT NOT NULL)"
FACE = (
    # The one question stores ask of the schema itself.
    """CREATE FUNCTION pragma_table_info(which text) RETURNS TABLE (name text) LANGUAGE sql STABLE AS
       'SELECT column_name::text FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = which'""",
    # Which of SQLite's statements tell the schema's version: `PRAGMA user_version`.
    "CREATE TABLE schema_version (version BIGINT NOT NULL)",
    "INSERT INTO schema_version VALUES (0)",
)
"""What a new schema begins with, before the first migration."""


@lru_cache(maxsize=1024)
def query(sql: str) -> str:
    """A store's statement with PostgreSQL's marks for values. Its texts hold no quoted question mark."""
    return sql.replace("%", "%%").replace("?", "%s")


def definition(statement: str) -> str:
    """A statement of a migration."""
    if statement.lstrip().startswith("CREATE VIRTUAL TABLE"):
        return _WORDS
    for pattern, word in _TYPES:
        statement = pattern.sub(word, statement)
    return statement


def value(given: object) -> object:
    """SQLite has no booleans: they are numbers in every column."""
    return int(given) if isinstance(given, bool) else given
