"""What a piece of work may do inside a commit: run statements, keep blobs, append entries.

An entry gets its place here and nowhere else: its index in the tree, its run's next sequence number, its bytes, its
leaf. Not here: when a transaction begins and ends (state/writer).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from palyra.errors import StateError
from palyra.journal.chain import entry_bytes
from palyra.journal.commitments import seal_salts
from palyra.journal.merkle import Frontier, leaf_hash
from palyra.model.record import EntryDraft
from palyra.signing import NoteSigner
from palyra.state.database import Cursor, Database
from palyra.state.head import HeadBroken

_NEW_KEY = "INSERT INTO run_keys VALUES (?, ?) ON CONFLICT DO NOTHING"
_KEY = "SELECT key FROM run_keys WHERE run_id = ?"


@lru_cache(maxsize=16)
def _keep_openings_sql(count: int) -> str:
    return f"INSERT INTO openings VALUES {', '.join(['(?, ?, ?, ?)'] * count)}"  # noqa: S608


class Transaction:
    def __init__(
        self,
        database: Database,
        frontier: Frontier,
        *,
        savepoints: bool = True,
        run_keys: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """`savepoints`: each piece of work can be undone by itself; without them undoing one undoes them all.
        `run_keys`: those that are known to be in the database."""
        self._database = database
        self.is_far = database.is_far
        self.has_savepoints = savepoints
        # What is undone, and the head this began with, are never grown themselves.
        self._before = frontier
        self.frontier = frontier.copy()
        self.last_index: int | None = None
        """The last entry this piece of work appended."""
        self.bytes_written = 0
        self._known_keys = run_keys
        self.run_keys: dict[str, bytes] = {}
        """Read or made here: to be known once this is committed."""
        self.successor: NoteSigner | None = None
        """Signs this commit's checkpoint too: the journal is handed over to its key (state/rotation)."""

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> Cursor:
        return self._database.execute(sql, parameters)

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, parameters).fetchall()

    def keep_blob(self, data: bytes, *, at_unix_ms: int) -> bytes:
        """Store `data` by its digest, once."""
        digest = hashlib.sha256(data).digest()
        self._database.send("INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (digest, data, at_unix_ms))
        self.bytes_written += len(data)
        return digest

    def keep_meta(self, name: str, value: str) -> None:
        sql = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        self.execute(sql, (name, value))

    def append(self, draft: EntryDraft, *, at_unix_ms: int, sequence: int | None = None) -> int:
        """Put an entry into the tree; returns its index. `sequence`: its number in its run, where its run's row was
        given the next one already."""
        index = self.frontier.size
        if sequence is None and draft.run_id is not None:
            sequence = self._next_sequence(draft.run_id)
        body = entry_bytes(draft, index=index, sequence=sequence, at_unix_ms=at_unix_ms)
        leaf = leaf_hash(body)
        self._database.send("INSERT INTO entries VALUES (?, ?, ?)", (index, leaf, body), in_vain=_entry_is_taken)
        if draft.commitments:
            self._keep_openings(index, draft)
        self.frontier.append(leaf)
        self.last_index = index
        self.bytes_written += len(body)
        return index

    def _keep_openings(self, index: int, draft: EntryDraft) -> None:
        """Under the run's key; what belongs to no run is kept as it is."""
        run_id = draft.run_id
        key = None if run_id is None else self._run_key(run_id)
        kept = [one.salt for one in draft.commitments] if key is None else seal_salts(draft.commitments, key, index)
        values: list[object] = []
        for commitment, salt in zip(draft.commitments, kept, strict=True):
            values += [index, commitment.field, run_id, salt]
        self._database.send(_keep_openings_sql(len(kept)), tuple(values), in_vain=_openings_are_taken)

    def _run_key(self, run_id: str) -> bytes:
        known = self._known_keys.get(run_id) or self.run_keys.get(run_id)
        if known is not None:
            return known
        key = os.urandom(32)
        if self.is_far:  # both in one journey
            self._database.send(_NEW_KEY, (run_id, key))
            ((key,),) = self.rows(_KEY, (run_id,))
        elif not self.execute(_NEW_KEY, (run_id, key)).rowcount:  # most that are not known are new
            ((key,),) = self.rows(_KEY, (run_id,))
        self.run_keys[run_id] = key
        return key

    def _next_sequence(self, run_id: str) -> int:
        sql = "UPDATE runs SET next_sequence = next_sequence + 1 WHERE run_id = ? RETURNING next_sequence - 1"
        rows = self.rows(sql, (run_id,))
        if not rows:
            raise StateError(f"Run {run_id} is not known.")
        sequence: int = rows[0][0]
        return sequence

    # ── for the writer ──

    def begin_work(self) -> None:
        """Where it gets a savepoint of its own."""
        self._before, self.frontier = self.frontier, self.frontier.copy()
        self.execute("SAVEPOINT work")

    def undo_work(self) -> None:
        """The last piece of work; without savepoints, all of them."""
        if self.has_savepoints:
            self.execute("ROLLBACK TO work")
        else:
            self._database.begin_again()
        self.frontier = self._before.copy()
        self.run_keys.clear()  # one of them may have been made by what is undone

    def end_work(self) -> None:
        """Of a savepoint of its own."""
        self.execute("RELEASE work")


def _entry_is_taken(row: tuple[object, ...]) -> HeadBroken:
    return HeadBroken(f"entry {row[0]} is there already")


def _openings_are_taken(row: tuple[object, ...]) -> HeadBroken:
    return HeadBroken(f"openings of entry {row[0]} are there already")
