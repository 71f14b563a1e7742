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
    # A value is removed by one sweep that looks at all calls; the server would look at all of them for each.
    (re.compile(r"\s+REFERENCES blobs\b"), ""),
    (re.compile(r"\)\s*STRICT\b(\s*,\s*WITHOUT ROWID)?\s*$"), ")"),
    (re.compile(r"\bx''"), "''::bytea"),
)
_WORDS = "CREATE TABLE search_words (rowid BIGINT PRIMARY KEY, words TEXT NOT NULL)"
_SPELLING = (
    (re.compile(r"\bINDEXED BY \w+"), ""),
    (re.compile(r"\bCROSS JOIN (\w+ \w+ ON)\b"), r"JOIN \1"),
    (re.compile(r"\bw\.search_words MATCH \?"), "string_to_array(w.words, ' ') @> matched_words(?)"),
    (re.compile(r"\bmin\(\("), "least(("),
    (re.compile(r"^PRAGMA secure_delete = ON$"), "SELECT 1"),  # the server's own pages are VACUUM's affair
    (re.compile(r"^INSERT INTO search_words \(search_words\) VALUES \('optimize'\)$"), "SELECT 1"),
    (re.compile(r"^INSERT INTO search_words \(search_words\) VALUES \('delete-all'\)$"), "DELETE FROM search_words"),
    (
        re.compile(r"^INSERT INTO search_words \(search_words, rowid, words\) VALUES \('delete', \?, \?\)$"),
        "DELETE FROM search_words WHERE rowid = ? AND words = ?",
    ),
)
KEPT_UP = (
    # SQLite's names for what stores ask for; made anew with every start.
    """CREATE OR REPLACE FUNCTION instr(bytea, bytea) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
       'SELECT position($2 IN $1)'""",
    # `"one" AND "two"`, as full text is asked for, taken apart.
    """CREATE OR REPLACE FUNCTION matched_words(text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
       $$ SELECT string_to_array(trim(BOTH '"' FROM $1), '" AND "') $$""",
    "CREATE INDEX IF NOT EXISTS search_words_each ON search_words USING gin (string_to_array(words, ' '))",
)
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
    for pattern, word in _SPELLING:
        sql = pattern.sub(word, sql)
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
