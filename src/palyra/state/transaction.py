"""What a piece of work may do inside a commit: run statements, keep blobs, append entries.

An entry gets its place here and nowhere else: its index in the tree, its run's next sequence number, its bytes, its
leaf. Not here: when a transaction begins and ends (state/writer).
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

from palyra.errors import StateError
from palyra.journal.chain import entry_bytes
from palyra.journal.merkle import Frontier, leaf_hash
from palyra.model.record import EntryDraft


class HeadBroken(Exception):
    """The stored head cannot be extended: the journal was changed behind our back."""


class Transaction:
    def __init__(self, connection: sqlite3.Connection, frontier: Frontier) -> None:
        self._connection = connection
        self._before = frontier
        self.frontier = frontier
        self.last_index: int | None = None
        """The last entry this piece of work appended."""
        self.bytes_written = 0

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, parameters)

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def keep_blob(self, data: bytes, *, at_unix_ms: int) -> bytes:
        """Store `data` by its digest, once."""
        digest = hashlib.sha256(data).digest()
        self.execute("INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (digest, data, at_unix_ms))
        self.bytes_written += len(data)
        return digest

    def append(self, draft: EntryDraft, *, at_unix_ms: int) -> int:
        """Put an entry into the tree; returns its index."""
        index = self.frontier.size
        sequence = None if draft.run_id is None else self._next_sequence(draft.run_id)
        body = entry_bytes(draft, index=index, sequence=sequence, at_unix_ms=at_unix_ms)
        leaf = leaf_hash(body)
        try:
            self.execute("INSERT INTO entries VALUES (?, ?, ?)", (index, leaf, body))
        except sqlite3.IntegrityError as error:
            raise HeadBroken(f"entry {index} is there already") from error
        for commitment in draft.commitments:
            self.execute(
                "INSERT INTO openings VALUES (?, ?, ?, ?)", (index, commitment.field, draft.run_id, commitment.salt)
            )
        self.frontier.append(leaf)
        self.last_index = index
        self.bytes_written += len(body)
        return index

    def _next_sequence(self, run_id: str) -> int:
        sql = "UPDATE runs SET next_sequence = next_sequence + 1 WHERE run_id = ? RETURNING next_sequence - 1"
        rows = self.rows(sql, (run_id,))
        if not rows:
            raise StateError(f"Run {run_id} is not known.")
        sequence: int = rows[0][0]
        return sequence

    # ── for the writer ──

    def begin_work(self) -> None:
        self._before = self.frontier.copy()
        self.last_index = None
        self.execute("SAVEPOINT work")

    def undo_work(self) -> None:
        self.execute("ROLLBACK TO work")
        self.frontier = self._before

    def end_work(self) -> None:
        self.execute("RELEASE work")
