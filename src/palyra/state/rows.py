"""The rows an audit reads, from one snapshot, and the audit of a home while others go on writing.

Rules: entries, checkpoints and openings are three streams in the order of the tree, so that a million entries need
one pass and a little memory; whatever stands in a column may have been put there by somebody else. Bodies that were
sealed into segment files are read from there, as long as the files are kept.

Not here: what is found (journal/audit), single entries (journal/lookup).
"""

from __future__ import annotations

import contextlib
import gc
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from palyra.journal.audit import Audit, Head, Report, RunRow, run_rows
from palyra.journal.audit_calls import SPENT_NAMES, Deletion, Kept
from palyra.journal.chain import open_salt
from palyra.journal.lookup import as_bytes
from palyra.journal.standing import ApprovalRow
from palyra.model.approval import COLUMNS, parse_row
from palyra.model.outcome import LIMIT_NAMES
from palyra.model.record import Entry, Owner
from palyra.state.db import Home, ReadHome, snapshot, strangers
from palyra.state.sealed import SealedBodies

Progress = Callable[[int], None]
"""Told how many entries were read, now and then."""
STEP = 4096

_KEPT = """SELECT c.run_id, c.tool, c.principal, c.intent_index, c.owner_boot_id, c.owner_pid, c.owner_start_ticks,
                  c.status, c.reason, c.result_index, d.data, o.data
           FROM calls c LEFT JOIN blobs d ON d.sha256 = c.details LEFT JOIN blobs o ON o.sha256 = c.outcome
           WHERE c.call_id = ?"""


class JournalRows:
    """The rows of one snapshot (`state.db.snapshot`)."""

    def __init__(self, connection: sqlite3.Connection, segments: Path | None = None) -> None:
        """`segments` is the folder of sealed files; without it their entries have no bodies."""
        self._connection = connection
        self._sealed = SealedBodies(lambda sql, given: connection.execute(sql, given).fetchall(), segments)
        self._openings: Iterator[tuple[Any, ...]] | None = None
        self._ahead: tuple[Any, ...] | None = None
        self._run_keys: dict[str, bytes | None] = {}

    def entries(self) -> Iterator[Entry]:
        """All there are: one at a negative index was put there by somebody else."""
        for index, leaf, body in self.plain():
            yield Entry(index, leaf, body)

    def plain(self) -> Iterator[tuple[int, bytes, bytes]]:
        """(index, leaf hash, body): the same, for an audit of a million."""
        for index, leaf, body in self._connection.execute("SELECT idx, leaf_hash, body FROM entries ORDER BY idx"):
            if body is None:
                yield index, as_bytes(leaf), self._sealed.entry(index, b"").body
            elif type(body) is bytes is type(leaf):
                yield index, leaf, body
            else:
                yield index, as_bytes(leaf), as_bytes(body)

    def count(self) -> int:
        count: int = self._connection.execute("SELECT count(*) FROM entries").fetchone()[0]
        return count

    def first_body(self) -> int:
        """The first entry from which on every one has its body: behind what retention removed."""
        row = self._connection.execute("SELECT max(first + count) FROM segments WHERE present = 0").fetchone()
        return row[0] or 0

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        for size, note in self._connection.execute("SELECT size, note FROM checkpoints ORDER BY size"):
            yield size, note if isinstance(note, str) else ""

    def head(self) -> Head:
        row = self._connection.execute("SELECT size, frontier FROM head").fetchone()
        return Head(size=row[0], frontier=as_bytes(row[1])) if row else Head(size=-1, frontier=b"")

    def leaves(self, first: int, end: int) -> Iterator[bytes]:
        """Leaf hashes, for proofs."""
        sql = "SELECT leaf_hash FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        for (leaf,) in self._connection.execute(sql, (first, end)):
            yield as_bytes(leaf)

    def count_calls(self) -> int:
        count: int = self._connection.execute("SELECT count(*) FROM calls").fetchone()[0]
        return count

    def runs(self) -> Iterator[RunRow]:
        counted = ("run_id", "principal", "calls_used", "attempts_used", "next_sequence")
        names = ", ".join((*counted, *SPENT_NAMES, *LIMIT_NAMES))
        end = len(counted) + len(SPENT_NAMES)
        for row in self._connection.execute(f"SELECT {names} FROM runs"):  # noqa: S608
            limits = dict(zip(LIMIT_NAMES, row[end:], strict=True))
            run_id, principal, calls, attempts, sequence = row[: len(counted)]
            yield RunRow(run_id, principal, calls, attempts, sequence, tuple(row[len(counted) : end]), limits)

    def approvals(self) -> Iterator[ApprovalRow]:
        salts = "SELECT field, salt FROM openings WHERE entry IN (?, ?) AND field IN ('request', 'terms')"
        for row in self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM approvals"):  # noqa: S608
            try:
                approval = parse_row(row)
            except ValueError:
                yield ApprovalRow(approval_id=str(row[0]), values={}, kept=())
                continue
            indexes = (approval.requested_index, approval.decided_index)
            found = {name: as_bytes(salt) for name, salt in self._connection.execute(salts, indexes)}
            kept = [("request", found.get("request", b""), approval.request_bytes())]
            if approval.decided_index is not None:
                kept.append(("terms", found.get("terms", b""), approval.terms_bytes()))
            values = dict(zip(COLUMNS, row, strict=True))
            yield ApprovalRow(approval_id=approval.approval_id, values=values, kept=tuple(kept))

    def deletions(self) -> Sequence[Deletion]:
        names = ("entry", "act", "call_id", "principal", "before_unix_ms", "first", "count")
        rows = self._connection.execute(f"SELECT {', '.join(names)} FROM deletions ORDER BY entry")  # noqa: S608
        return [Deletion(**dict(zip(names, row, strict=True))) for row in rows]

    def kept(self, call_id: str) -> Kept | None:
        """The call's row and the values kept beside it."""
        found = self._connection.execute(_KEPT, (call_id,)).fetchone()
        if found is None:
            return None
        return Kept(found[:-2], found[-2], found[-1])

    def salts(self, index: int) -> dict[str, bytes]:
        """What opens the commitments to kept values of an entry; asked for in the order of the tree."""
        if self._openings is None:
            sql = "SELECT entry, field, run_id, salt FROM openings WHERE field IN ('details', 'outcome') ORDER BY entry"
            self._openings = iter(self._connection.execute(sql))
            self._ahead = next(self._openings, None)
        found: dict[str, bytes] = {}
        while self._ahead is not None and self._ahead[0] <= index:
            entry, name, run_id, stored = self._ahead
            if entry == index:
                found[name] = open_salt(as_bytes(stored), self._run_key(run_id), entry, name)
            self._ahead = next(self._openings, None)
        return found

    def _run_key(self, run_id: str | None) -> bytes | None:
        if run_id is None:
            return None
        if run_id not in self._run_keys:
            if len(self._run_keys) > 1024:
                self._run_keys.clear()
            row = self._connection.execute("SELECT key FROM run_keys WHERE run_id = ?", (run_id,)).fetchone()
            self._run_keys[run_id] = None if row is None else as_bytes(row[0])
        return self._run_keys[run_id]


def verify_journal(
    home: Home | ReadHome,
    *,
    is_alive: Callable[[Owner], bool],
    known: Sequence[str] = (),
    every_signature: bool = False,
    progress: Progress | None = None,
) -> Report:
    """The whole audit of a home's journal, from one snapshot, while others go on writing."""
    with snapshot(home.database) as connection:
        rows = JournalRows(connection, home.segments)
        audit = Audit(verifier=home.verifier, is_alive=is_alive)
        try:
            audit = Audit(
                verifier=home.verifier,
                is_alive=is_alive,
                known=known,
                every_signature=every_signature,
                handovers=home.keys.handovers,
                kept=rows.kept,
                salts=rows.salts,
                deletions=rows.deletions(),
            )
            audit.schema(strangers(connection))
            entries, checkpoints = _watched(rows.plain(), progress), rows.checkpoints()
            with _no_cycles():
                return run_rows(
                    audit,
                    entries,
                    checkpoints,
                    head=rows.head(),
                    rows=rows.count_calls(),
                    runs=rows.runs(),
                    approvals=rows.approvals(),
                )
        except sqlite3.Error as error:
            return audit.break_off(f"The database cannot be read any further: {error}.")


@contextlib.contextmanager
def _no_cycles() -> Iterator[None]:
    """An audit makes millions of values and no cycle among them: looking for some would take a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


Row = tuple[int, bytes, bytes]


def _watched(entries: Iterator[Row], progress: Progress | None) -> Iterator[Row]:
    if progress is None:
        return entries

    def counted() -> Iterator[Row]:
        for number, entry in enumerate(entries):
            if number % STEP == 0:
                progress(number)
            yield entry

    return counted()
