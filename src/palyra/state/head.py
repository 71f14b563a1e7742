"""The head of the journal, as this process trusts it: the tree's right edge, under a checkpoint of our own key.

Rules: a head is gone on from only if its newest checkpoint is ours and fits it: otherwise whoever can edit the file
could have us sign a rewritten history by extending it. Where nobody else wrote since then (the database's version) it
is not read again, and neither are the keys of runs. What a commit seals is trusted once that is durable.

Not here: when a commit begins and ends (state/writer), what is put into the tree (state/transaction).
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.errors import TrustError
from palyra.journal.checkpoint import open_checkpoint, parse_checkpoint, sign_head
from palyra.journal.lookup import as_bytes
from palyra.journal.merkle import EMPTY_ROOT, Frontier
from palyra.model.record import Checkpoint
from palyra.signing import NoteSigner
from palyra.state.database import Database
from palyra.state.schema import HEAD_EVERY
from palyra.values import dataclass

MAX_RUN_KEYS = 256
READ_HEAD = "SELECT size, frontier, (SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1) FROM head"
_LEAVES = "SELECT leaf_hash FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"


class HeadBroken(Exception):
    """The stored head cannot be extended: the journal was changed behind our back."""


class KeyChanged(HeadBroken):
    """The journal was handed over to another key while this process ran."""


@dataclass(frozen=True, slots=True, eq=False)
class Sealed:
    """The tree's right edge, the newest checkpoint over it, and the head's row, which is a few leaves behind."""

    frontier: Frontier
    note: str
    stored: tuple[int, bytes]


_NONE = Sealed(Frontier(), "", (-1, b""))
"""Before anything was read."""


class Head:
    def __init__(self, signer: NoteSigner) -> None:
        self.signer = signer
        self.trusted = _NONE
        """As it was found sound, or written here and is durable."""
        self.run_keys: dict[str, bytes] = {}
        """Keys of runs that are in the database, for as long as nobody else has written."""
        self._version: int | None = None
        """The database's, when the head was last found trusted: while it stays, nobody else has written."""

    def read(self, database: Database) -> Frontier:
        """In a transaction: the tree as it stands, or `HeadBroken`."""
        version = database.version()
        if version is not None and version == self._version:
            return self.trusted.frontier
        self._version = None
        self.run_keys.clear()
        rows = database.execute(READ_HEAD).fetchall()
        if len(rows) != 1:
            raise HeadBroken("the head is missing")
        size, packed, note = rows[0]
        stored, signed = (size, packed), "" if note is None else note
        if (stored, signed) != (self.trusted.stored, self.trusted.note):
            self.trusted = Sealed(self._check(database, size, packed, signed), signed, stored)
        self._version = version
        return self.trusted.frontier

    def seal(self, database: Database, frontier: Frontier, successor: NoteSigner | None) -> Sealed:
        """In a transaction that made the tree larger: one signed checkpoint for all of it."""
        size = frontier.size
        note = sign_head(self.signer, size, frontier.root(), successor=successor)
        database.send("INSERT INTO checkpoints VALUES (?, ?)", (size, note))
        stored = self.trusted.stored
        if size - stored[0] >= HEAD_EVERY:
            stored = (size, frontier.pack())
            database.send("UPDATE head SET size = ?, frontier = ?", stored)
        return Sealed(frontier, note, stored)

    def remember(self, run_keys: Mapping[str, bytes]) -> None:
        """They are durable. Where nobody could tell that somebody else has written, nothing is remembered."""
        if self._version is None:
            return
        if len(self.run_keys) + len(run_keys) > MAX_RUN_KEYS:
            self.run_keys.clear()
        self.run_keys |= run_keys

    def doubt(self) -> None:
        """A commit was broken off by Ctrl-C, perhaps behind its own end: what is there now is read again."""
        self._version = None

    def forget(self) -> None:
        """After a fork: the parent goes on by itself."""
        self.trusted, self._version = _NONE, None

    def _check(self, database: Database, size: int, packed: bytes, note: str) -> Frontier:
        try:
            frontier = _newest(database, Frontier.parse(size, packed), note)
            # The head that hands over is signed by the old key too: it must not be gone on from with that one.
            vkey = database.execute("SELECT value FROM meta WHERE name = 'vkey'").fetchone()
            if vkey is None or vkey[0] != self.signer.vkey:
                raise KeyChanged
            signed = open_checkpoint(note, self.signer.verifier) if note else Checkpoint("", 0, EMPTY_ROOT, "")
            if (signed.size, signed.root) != (frontier.size, frontier.root()):
                raise ValueError("the head is not the tree of the newest signed checkpoint")
            before = self.trusted.frontier.size
            if self.trusted is not _NONE and frontier.size <= before:
                raise ValueError(f"the tree had {before} entries a moment ago and was set back")
        except (ValueError, TrustError) as error:
            raise HeadBroken(str(error).rstrip(".")) from error
        return frontier


def _newest(database: Database, frontier: Frontier, note: str) -> Frontier:
    """The stored one and the few leaves since: whatever of them is not what was signed makes another root."""
    size = parse_checkpoint(note).size if note else 0
    if 0 < size - frontier.size < HEAD_EVERY:
        for (leaf,) in database.execute(_LEAVES, (frontier.size, size)).fetchall():
            frontier.append(as_bytes(leaf))
    return frontier
