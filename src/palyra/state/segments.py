"""Rotation of the journal: old entries move into sealed files, and sealed files go when retention says so.

A segment is an export (journal/export) of entries first … end under the checkpoint of that size, so it is verified by
`palyra verify` wherever it is carried. Sealing takes the bodies of calls out of the database and leaves every leaf
hash, every checkpoint and every act; proofs of old entries go on being made, and old proofs go on holding. Removing a
segment removes the rows of its calls too.

Order of sealing: 1 the file, durable · 2 one commit: the act, the row, the bodies gone. Of removing: 1 the commit ·
2 the file. A crash between leaves a file that nobody refers to, never a body that is nowhere; the next retention
removes it. One at a time (state/segment_files). How old a call is, its entry says: rows, which anybody could have
changed, only say where to look.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from palyra.canon import Json
from palyra.errors import StateError, TrustError
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.journal.audit_pruned import Places
from palyra.journal.chain import RESULT
from palyra.journal.entry import parse_entry
from palyra.journal.export import export_lines
from palyra.journal.lookup import as_bytes
from palyra.journal.merkle import Frontier, leaf_hash
from palyra.journal.pruned_runs import COLUMNS, Gone, write_runs, write_uses
from palyra.journal.tree import Tree
from palyra.model.record import Checkpoint
from palyra.state.db import NOWHERE
from palyra.state.keyfile import sync_folder
from palyra.state.retention import doom, sweep
from palyra.state.sealed import OF_AN_ACT, SealedBodies, segment_file
from palyra.state.search import overwrite_words, take_out, words_in
from palyra.state.segment_files import alone_with_segments, others_were_here, remove_segment
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

MAX_SEGMENT_ENTRIES = 100_000
_RUNS_AT_ONCE = 500
_DROP_OPENINGS = """DELETE FROM openings
                    WHERE entry IN (SELECT idx FROM entries WHERE idx >= ? AND idx < ? AND body IS NULL)"""
"""Of calls alone: acts stay, and so does what opens what they say of approvals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    first: int
    count: int
    path: Path


def seal_entries(writer: Writer, *, before_unix_ms: int, at_unix_ms: int, actor: str = PALYRA) -> tuple[Segment, ...]:
    """Move every entry of calls that ended before then into sealed files, oldest first."""
    if writer.home.sealed_in == NOWHERE:
        raise StateError(
            "Entries of a cluster's journal are sealed into a folder that every daemon sees.",
            "Set [cluster] segments to it.",
        )
    sealed: list[Segment] = []
    with alone_with_segments(writer):
        while (bounds := _next_bounds(writer, before_unix_ms)) is not None:
            first, head = bounds
            bodies = (body for _, _, body in _in_database(writer, first, head.size))
            _check_age(writer, first, head, bodies, before_unix_ms=before_unix_ms)
            sealed.append(_seal(writer, first, head, at_unix_ms=at_unix_ms, actor=actor))
    if sealed:
        sweep(writer)
    return tuple(sealed)


def _next_bounds(writer: Writer, before_unix_ms: int) -> tuple[int, Checkpoint] | None:
    """Where the next segment begins, and the checkpoint it ends with: no call may lie on both sides of it."""
    rows = writer.rows
    first = rows("SELECT coalesce(max(first + count), 0) FROM segments")[0][0]
    old = "SELECT max(result_index) + 1 FROM calls WHERE closed_unix_ms < ? AND result_index >= ?"
    young = """SELECT min(coalesce(intent_index, result_index)) FROM calls
               WHERE closed_unix_ms IS NULL OR closed_unix_ms >= ?"""
    end = rows(old, (before_unix_ms, first))[0][0]
    if end is None:
        return None
    alive = rows(young, (before_unix_ms,))[0][0]
    end = min(end, first + MAX_SEGMENT_ENTRIES, end if alive is None else alive)
    straddling = """SELECT min(intent_index) FROM calls
                    WHERE intent_index >= ? AND intent_index < ? AND (result_index IS NULL OR result_index >= ?)"""
    while end > first:
        sql = "SELECT size, note FROM checkpoints WHERE size <= ? AND size > ? ORDER BY size DESC LIMIT 1"
        head = rows(sql, (end, first))
        if not head:
            return None
        end = rows(straddling, (first, head[0][0], head[0][0]))[0][0]
        if end is None:
            return first, _opened(writer, head[0][1])
    return None


def _opened(writer: Writer, note: str) -> Checkpoint:
    try:
        return writer.home.keys.open(note)
    except TrustError as error:
        raise StateError(f"A checkpoint is not valid: {error}", "Run: palyra journal verify") from error


def _seal(writer: Writer, first: int, head: Checkpoint, *, at_unix_ms: int, actor: str) -> Segment:
    count = head.size - first
    path = segment_file(writer.home.segments, first, count)
    digest, size, moved = _write(writer, path, first, head)  # 1
    told = {"first": first, "count": count, "bodies": moved.count, "places_sha256": moved.sha256()}
    act = Act(
        kind=ActKind.SEGMENT_SEALED,
        actor=actor,
        subject=f"segment/{path.name}",
        details=told | {"sha256": digest.hex(), "bytes": size},
    )

    def work(tx: Transaction) -> None:
        if tx.rows("SELECT 1 FROM segments WHERE first + count > ?", (first,)):
            raise others_were_here()
        tx.execute("PRAGMA secure_delete = ON")
        sql = "SELECT coalesce(max(closed_unix_ms), 0) FROM calls WHERE result_index >= ? AND result_index < ?"
        row = (first, count, digest, size, tx.rows(sql, (first, head.size))[0][0])
        tx.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, 1)", row)
        sql = "UPDATE entries SET body = NULL WHERE idx >= ? AND idx < ? AND instr(body, ?) = 0"
        tx.execute(sql, (first, head.size, OF_AN_ACT))
        record_act(tx, act, at_unix_ms=at_unix_ms)

    writer.commit_now(work)  # 2
    return Segment(first=first, count=count, path=path)


def _write(writer: Writer, path: Path, first: int, head: Checkpoint) -> tuple[bytes, int, Places]:
    """The file's digest and length, and which of its entries leave the database: all but acts."""
    folder = path.parent
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}")
    hasher, size, moved = hashlib.sha256(), 0, Places()
    tree = Tree(writer.rows)
    begin, links = tree.frontier(first), tree.links(writer.home.keys)
    grown = begin.copy()
    bodies = _bodies(writer, first, head.size, moved, grown)
    lines = export_lines(bodies, head, begin=begin, links=links)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            for line in lines:
                file.write(line)
                hasher.update(line)
                size += len(line)
            file.flush()
            os.fsync(file.fileno())
        if grown.root() != head.root:
            said = f"Entries {first} to {head.size - 1} are not what was signed."
            raise StateError(said, "Run: palyra journal verify")
        temporary.replace(path)
    except OSError as error:
        raise StateError(f"A segment could not be written: {error.strerror}.", "Free space, then try again.") from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(folder)
    sync_folder(folder.parent)
    return hasher.digest(), size, moved


def _bodies(writer: Writer, first: int, end: int, moved: Places, grown: Frontier) -> Iterator[bytes]:
    """As they were hashed: what was edited is never sealed away. `moved` is told where those lie that go."""
    for index, leaf, body in _in_database(writer, first, end):
        if leaf_hash(body) != leaf:
            raise StateError(f"Entry {index} is not what was hashed.", "Run: palyra journal verify")
        grown.append(leaf)
        if OF_AN_ACT not in body:
            moved.add(index)
        yield body


def _in_database(writer: Writer, first: int, end: int) -> Iterator[tuple[int, bytes, bytes]]:
    for at in range(first, end, 1024):
        sql = "SELECT idx, leaf_hash, body FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        for index, leaf, body in writer.rows(sql, (at, min(at + 1024, end))):
            yield index, as_bytes(leaf), as_bytes(body)


def _check_age(writer: Writer, first: int, head: Checkpoint, bodies: Iterable[bytes], *, before_unix_ms: int) -> Gone:
    """What these entries say of runs and approvals. Age is by the entries, as they were signed: rows are not, and
    whoever sets their times back has retention remove what happened a moment ago, with an act that excuses it."""
    frontier, stay = Tree(writer.rows).frontier(first), f"entries {first} to {head.size - 1} stay"
    gone = Gone()
    for index, body in enumerate(bodies, first):
        frontier.append(leaf_hash(body))
        try:
            view = parse_entry(body)
        except ValueError as error:
            raise StateError(f"Entry {index} cannot be read: {stay}.", "Run: palyra journal verify") from error
        gone.read(view)
        ended = view.kind == RESULT and view.predicate.get("kept") is not False  # the others have no row, and no age
        if ended and view.at_unix_ms >= before_unix_ms:
            raise StateError(f"Entry {index} is younger than its row says: {stay}.", "Run: palyra journal verify")
    if frontier.root() != head.root:
        raise StateError(f"Entries are not those that were signed: {stay}.", "Run: palyra journal verify")
    return gone


def drop_segments(writer: Writer, *, before_unix_ms: int, at_unix_ms: int, actor: str = PALYRA) -> tuple[Segment, ...]:
    """Remove sealed files whose youngest call ended before then. Hashes, checkpoints and acts stay."""
    if not writer.rows("SELECT 1 FROM segments LIMIT 1"):
        return ()
    with alone_with_segments(writer):
        gone = _drop(writer, before_unix_ms, at_unix_ms=at_unix_ms, actor=actor)
    if gone:
        overwrite_words(writer)
        sweep(writer)
    return tuple(gone)


def _drop(writer: Writer, before_unix_ms: int, *, at_unix_ms: int, actor: str) -> list[Segment]:
    sql = "SELECT first, count FROM segments WHERE present = 1 AND newest_unix_ms < ? ORDER BY first"
    gone: list[Segment] = []
    for first, count in writer.rows(sql, (before_unix_ms,)):
        earlier = writer.rows("SELECT 1 FROM segments WHERE present = 1 AND first < ?", (first,))
        if earlier:  # only from the old end: what is gone is one piece
            break
        sealed = SealedBodies(writer.rows, writer.home.segments)
        head = _opened(writer, Tree(writer.rows).note(first + count))
        bodies = (sealed.body(index) for index in range(first, first + count))
        said = _check_age(writer, first, head, bodies, before_unix_ms=before_unix_ms)
        path = segment_file(writer.home.segments, first, count)
        words = words_in(writer, first, first + count)
        writer.commit_now(_dropping(path, first, count, said, words=words, at_unix_ms=at_unix_ms, actor=actor))  # 1
        remove_segment(path)  # 2
        gone.append(Segment(first=first, count=count, path=path))
    return gone


def _dropping(
    path: Path,
    first: int,
    count: int,
    said: Gone,
    *,
    words: Sequence[tuple[int, str]],
    at_unix_ms: int,
    actor: str,
) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        tx.execute("PRAGMA secure_delete = ON")
        end = first + count
        if tx.execute("UPDATE segments SET present = 0 WHERE first = ? AND present = 1", (first,)).rowcount != 1:
            raise others_were_here()
        doom(tx, "result_index >= ? AND result_index < ?", (first, end))
        tx.execute(_DROP_OPENINGS, (first, end))
        tx.execute("DELETE FROM calls WHERE result_index >= ? AND result_index < ?", (first, end))
        take_out(tx, words, first, end)
        details = {"first": first, "count": count, **_keep_runs(tx, said, at_unix_ms=at_unix_ms)}
        subject = f"segment/{path.name}"
        act = Act(kind=ActKind.ENTRIES_PRUNED, actor=actor, subject=subject, details=details)
        index = record_act(tx, act, at_unix_ms=at_unix_ms)
        sql = "INSERT INTO deletions (entry, act, first, count) VALUES (?, ?, ?, ?)"
        tx.execute(sql, (index, act.kind.value, first, count))

    return work


def _keep_runs(tx: Transaction, said: Gone, *, at_unix_ms: int) -> dict[str, Json]:
    """Their rows as they are now, and what else the entries say: the audit goes on from it. What the act says of it."""
    rows: list[tuple[Any, ...]] = []
    names = sorted(said.of_runs)
    for at in range(0, len(names), _RUNS_AT_ONCE):
        some = tuple(names[at : at + _RUNS_AT_ONCE])
        sql = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE run_id IN ({', '.join('?' * len(some))})"  # noqa: S608
        rows += tx.rows(sql, some)
    runs = tx.keep_blob(write_runs(rows, said), at_unix_ms=at_unix_ms)
    uses = tx.keep_blob(write_uses(said.uses), at_unix_ms=at_unix_ms)
    return {"runs": len(rows), "runs_sha256": runs.hex(), "approvals_sha256": uses.hex()}
