"""The rows an audit reads, from one snapshot.

Rules: entries, checkpoints and openings are three streams in the order of the tree, so that a million entries need
one pass and a little memory; whatever stands in a column may have been put there by somebody else. Bodies that were
sealed into segment files are read from there, as long as the files are kept.

Not here: the audit itself (state/verifying), rows that acts tell of (state/standing_rows), what is found
(journal/audit), single entries (journal/lookup).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from palyra.journal.audit import Head
from palyra.journal.audit_calls import SPENT_NAMES, RunRow
from palyra.journal.audit_kept import Artifact, Deletion, Kept, KeptAudit
from palyra.journal.commitments import SALT_BYTES, open_salt, run_commitment
from palyra.journal.held_standing import HeldRow
from palyra.journal.lookup import as_bytes
from palyra.journal.merkle import Frontier
from palyra.journal.run_terms import terms_sha256
from palyra.journal.segment_standing import SegmentRow
from palyra.journal.standing import ApprovalRow
from palyra.journal.standings import StandingRows
from palyra.model.approval import COLUMNS, parse_row
from palyra.model.budget import RESOURCES
from palyra.model.outcome import LIMIT_NAMES
from palyra.model.record import Entry
from palyra.state.schema import HEAD_EVERY
from palyra.state.sealed import OF_AN_ACT, SealedBodies
from palyra.state.standing_rows import Reading, read_standing

MAX_WAITING = 1 << 15
"""Entries whose openings are remembered until their call is claimed; beyond it they are looked up singly."""

_KEPT = """SELECT c.run_id, c.tool, c.principal, c.intent_index, c.owner_boot_id, c.owner_pid, c.owner_start_ticks,
                  c.opened_unix_ms, c.status, c.reason, c.result_index, c.closed_unix_ms, d.data, o.data
           FROM calls c LEFT JOIN blobs d ON d.sha256 = c.details LEFT JOIN blobs o ON o.sha256 = c.outcome
           WHERE c.call_id = ?"""
_COUNTED = ("run_id", "principal", "calls_used", "attempts_used", "next_sequence", "created_unix_ms")
_OF_RUN = (*_COUNTED, "workspace", "salt")
_HAS_SALT = "SELECT 1 FROM pragma_table_info('runs') WHERE name = 'salt'"
_TERMS = ("workspace", "created_unix_ms", "terms", "ended_unix_ms")
_TERMS_AT = len(_OF_RUN)
_SPENT_AT = _TERMS_AT + len(_TERMS)
_LIMITS_AT = _SPENT_AT + len(SPENT_NAMES)
_RUNS = f"""SELECT {", ".join(f"r.{name}" for name in _OF_RUN)}, {", ".join(f"t.{name}" for name in _TERMS)},
                   {", ".join(f"r.{name}" for name in (*SPENT_NAMES, *LIMIT_NAMES))}
            FROM runs r LEFT JOIN run_terms t ON t.run_id = r.run_id AND t.principal = r.principal"""  # noqa: S608
_GOES_ON = "SELECT 1 FROM processes p WHERE p.call_id = r.call_id AND p.status = 'running'"
_HELD = f"SELECT call_id, run_id, EXISTS ({_GOES_ON}), {', '.join(RESOURCES)} FROM reservations r"  # noqa: S608
_OPENINGS = "SELECT entry, field, run_id, salt FROM openings WHERE field IN ('details', 'outcome')"


class JournalRows:
    """The rows of one snapshot (`state.connection.snapshot`, `cluster.verifying.snapshot`)."""

    def __init__(self, connection: Reading, segments: Path | None = None) -> None:
        """`segments` is the folder of sealed files; without it their entries have no bodies."""
        self._connection = connection
        # A server sends a whole table at once unless it is told otherwise.
        self._stream: Callable[[str], Iterable[tuple[Any, ...]]] = getattr(connection, "stream", connection.execute)
        self._sealed = SealedBodies(lambda sql, given: connection.execute(sql, given).fetchall(), segments)
        self._openings: Iterator[tuple[Any, ...]] | None = None
        self._ahead: tuple[Any, ...] | None = None
        self._waiting: dict[int, list[tuple[Any, ...]]] = {}
        self._passed = -1
        self._forgot = False
        self._run_keys: dict[str, bytes | None] = {}

    def entries(self) -> Iterator[Entry]:
        """All there are: one at a negative index was put there by somebody else."""
        for index, leaf, body in self.plain():
            yield Entry(index, leaf, body)

    def plain(self) -> Iterator[tuple[int, bytes, bytes]]:
        """(index, leaf hash, body): the same, for an audit of a million."""
        for index, leaf, body in self._stream("SELECT idx, leaf_hash, body FROM entries ORDER BY idx"):
            if body is None:
                sealed = self._sealed.entry(index, b"").body
                # Acts stay in the database: one that somebody took out would go with its file.
                yield index, as_bytes(leaf), b"" if OF_AN_ACT in sealed else sealed
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
        for size, note in self._stream("SELECT size, note FROM checkpoints ORDER BY size"):
            yield size, note if isinstance(note, str) else ""

    def head(self) -> Head:
        """The stored one, and the leaves since: it is behind the newest checkpoint by a few entries."""
        sql = "SELECT size, frontier, (SELECT coalesce(max(size), 0) FROM checkpoints) FROM head"
        row = self._connection.execute(sql).fetchone()
        if row is None:
            return Head(size=-1, frontier=b"")
        size, packed, newest = row[0], as_bytes(row[1]), row[2]
        try:
            frontier = Frontier.parse(size, packed)
        except ValueError:
            return Head(size=size, frontier=packed)
        if 0 < newest - size < HEAD_EVERY:
            for leaf in self.leaves(size, newest):
                frontier.append(leaf)
        return Head(size=frontier.size, frontier=frontier.pack())

    def leaves(self, first: int, end: int) -> Iterator[bytes]:
        """Leaf hashes, for proofs."""
        sql = "SELECT leaf_hash FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        for (leaf,) in self._connection.execute(sql, (first, end)):
            yield as_bytes(leaf)

    def count_calls(self) -> int:
        """By the rows themselves: an index, by which they would be counted, may have been told of fewer."""
        sql = "SELECT count(*) FROM calls WHERE input_sha256 IS NOT NULL"
        count: int = self._connection.execute(sql).fetchone()[0]
        return count

    def runs(self) -> Iterator[RunRow]:
        # A home that no newer version has written yet is read as it lies there.
        has_salt = self._connection.execute(_HAS_SALT).fetchone() is not None
        for row in self._connection.execute(_RUNS if has_salt else _RUNS.replace("r.salt", "NULL")):
            run_id, principal, calls, attempts, sequence, began, folder, salt = row[:_TERMS_AT]
            workspace, created, terms, ended = row[_TERMS_AT:_SPENT_AT]
            spent, limits = row[_SPENT_AT:_LIMITS_AT], row[_LIMITS_AT:]
            said = None if terms is None else terms_sha256(run_id, principal, workspace, created, as_bytes(terms))
            named, begun = dict(zip(LIMIT_NAMES, limits, strict=True)), _commitment(folder, began, salt)
            yield RunRow(run_id, principal, calls, attempts, sequence, tuple(spent), named, said, ended, began, begun)

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

    def held(self) -> Iterator[HeldRow]:
        for call_id, run_id, is_kept, *amounts in self._connection.execute(_HELD):
            yield HeldRow(call_id=call_id, run_id=run_id, amounts=tuple(amounts), is_kept=bool(is_kept))

    def standing(self) -> StandingRows:
        return replace(read_standing(self._connection), segments=self.segments())

    def segments(self) -> Iterator[SegmentRow]:
        sql = "SELECT first, count, sha256, bytes, present FROM segments"
        for first, count, sha256, size, present in self._connection.execute(sql):
            yield SegmentRow(
                first=first,
                count=count,
                said={"sha256": as_bytes(sha256).hex(), "bytes": size},
                is_present=bool(present),
                sha256=partial(self._sealed.sha256, first, count),
            )

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

    def blob(self, sha256: str) -> bytes | None:
        """A kept value by its digest in hex."""
        try:
            digest = bytes.fromhex(sha256)
        except ValueError:
            return None
        found = self._connection.execute("SELECT data FROM blobs WHERE sha256 = ?", (digest,)).fetchone()
        return None if found is None else as_bytes(found[0])

    def kept_audit(self) -> KeptAudit:
        return KeptAudit(kept=self.kept, salts=self.salts, artifact=self.artifact, deletions=self.deletions())

    def artifact(self, artifact_id: str) -> Artifact | None:
        sql = "SELECT run_id, sha256, size_bytes, name FROM artifacts WHERE artifact_id = ?"
        found: Artifact | None = self._connection.execute(sql, (artifact_id,)).fetchone()
        return found

    def salts(self, index: int) -> Mapping[str, bytes]:
        """What opens the commitments to kept values of an entry; quick when asked for nearly in order."""
        if index > self._passed:
            self._pass(index)
        rows = self._waiting.pop(index, [])
        if not rows and self._forgot:
            rows = self._connection.execute(f"{_OPENINGS} AND entry = ?", (index,)).fetchall()
        return {
            name: open_salt(as_bytes(stored), self._run_key(run_id), entry, name)
            for entry, name, run_id, stored in rows
        }

    def _pass(self, index: int) -> None:
        """Take in the openings up to this entry: those of calls that are still open wait until they are asked for."""
        if self._openings is None:
            self._openings = iter(self._stream(f"{_OPENINGS} ORDER BY entry"))
            self._ahead = next(self._openings, None)
        while self._ahead is not None and self._ahead[0] <= index:
            self._waiting.setdefault(self._ahead[0], []).append(self._ahead)
            self._ahead = next(self._openings, None)
        self._passed = index
        if len(self._waiting) > MAX_WAITING:
            self._waiting.clear()
            self._forgot = True

    def _run_key(self, run_id: str | None) -> bytes | None:
        if run_id is None:
            return None
        if run_id not in self._run_keys:
            if len(self._run_keys) > 1024:
                self._run_keys.clear()
            row = self._connection.execute("SELECT key FROM run_keys WHERE run_id = ?", (run_id,)).fetchone()
            self._run_keys[run_id] = None if row is None else as_bytes(row[0])
        return self._run_keys[run_id]


def _commitment(workspace: str, created_unix_ms: int, salt: object) -> str | None:
    """As its first entry tells it; None where nothing can open it."""
    key = as_bytes(salt)
    return run_commitment(workspace, created_unix_ms, key) if len(key) == SALT_BYTES else None
