"""Who a journal is: its origin, its keys in their order, and the key file that speaks for it now.

Rules: a key file that does not fit the journal is refused, so that a swapped one does not sign on as if nothing had
happened; a change of keys that a crash cut off between the commit and the renaming of the key file is finished here.
Where names and file do not fit, they are read once more while nobody changes keys: one may have been read before a
change and the other behind it. What the table says of earlier keys is checked against the entries by the audit
(journal/audit).

Not here: changing keys (state/rotation), key files (state/keyfile).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from palyra.errors import StateError, TrustError
from palyra.journal.keys import Handover, Keys
from palyra.signing import NoteVerifier, SigningKey, parse_vkey
from palyra.state.connection import of_one_moment
from palyra.state.keyfile import KEY_FILE, read_key, sync_folder
from palyra.state.lock import FileLock

NEXT_KEY_FILE = "installation.key.next"
CHANGE_PATIENCE_S = 30.0
_HAS_KEYS = "SELECT 1 FROM sqlite_master WHERE name = 'keys'"


class OtherKey(StateError):
    """The key file, or what the database says of keys, is another's."""


@contextlib.contextmanager
def alone_with_keys(state: Path) -> Iterator[None]:
    """Nobody changes the journal's key meanwhile, or puts a new one into its place."""
    lock = FileLock(state)
    try:
        if not lock.acquire(CHANGE_PATIENCE_S):
            raise StateError("Another process has been changing the journal's key for 30 s.", "Try again.")
        yield
    finally:
        lock.close()


def read_keys(connection: sqlite3.Connection) -> Keys:
    """The keys the database names, as of one moment; `StateError` when they do not follow from each other."""
    with of_one_moment(connection):
        return keys_of(dict(connection.execute("SELECT name, value FROM meta")), _rows(connection))


def keys_of(meta: Mapping[str, str], rows: Sequence[tuple[int, str]]) -> Keys:
    """From the rows of `meta` and `keys`, whatever database has them."""
    try:
        newest = parse_vkey(meta.get("vkey", ""))
        named = [(entry, parse_vkey(vkey)) for entry, vkey in rows] or [(-1, newest)]
        pairs = pairwise(named)
        keys = Keys(newest, tuple(Handover(entry, old, new) for (_, old), (entry, new) in pairs))
    except (TrustError, TypeError, ValueError, AttributeError) as error:  # a damaged page holds anything
        hint = "Restore the state from a backup, or name another --home."
        raise StateError(f"The database does not list the journal's keys: {error}", hint) from error
    if newest.name != meta.get("origin") or named[-1][1] != newest or named[0][0] != -1:
        raise other_key()
    return keys


def _rows(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """A database from before keys could change has no such table."""
    if not connection.execute(_HAS_KEYS).fetchone():
        return []
    return connection.execute("SELECT entry, vkey FROM keys ORDER BY entry").fetchall()


def name_first_key(connection: sqlite3.Connection, origin: str, key: SigningKey) -> None:
    for statement, values in named_first(origin, key):
        if "INTO keys" not in statement or connection.execute(_HAS_KEYS).fetchone():
            connection.execute(statement, values)


def named_first(origin: str, key: SigningKey) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The statements, with their values, that name a new journal's first key."""
    vkey = NoteVerifier(origin, key.public).vkey
    return (
        ("INSERT INTO meta VALUES ('origin', ?), ('vkey', ?)", (origin, vkey)),
        ("INSERT INTO keys VALUES (-1, ?)", (vkey,)),
    )


def current_key(state: Path, read: Callable[[], Keys], *, passphrase: bytes | None) -> tuple[Keys, SigningKey]:
    """What `read` finds in the database, and the key file's key; only if that is the journal's newest."""
    keys, key = read(), read_key(state / KEY_FILE, passphrase=passphrase)
    if key.public == keys.newest.key:
        return keys, key
    with alone_with_keys(state):
        keys, key = read(), read_key(state / KEY_FILE, passphrase=passphrase)
        if key.public == keys.newest.key:
            return keys, key
        following = state / NEXT_KEY_FILE
        if following.exists():
            key = read_key(following, passphrase=passphrase)
            if key.public == keys.newest.key:
                following.replace(state / KEY_FILE)
                sync_folder(state)
                return keys, key
    raise other_key()


def other_key() -> OtherKey:
    return OtherKey(
        "The installation's key is not the one this journal was started with.",
        "Restore state/installation.key from a backup, or move the state folder away to start anew.",
    )
