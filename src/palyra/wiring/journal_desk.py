"""The journal for operators, over a live installation: pages, entries, calls, proofs and the whole audit.

Rules: what is shown is read from the entries themselves and held against their hashes; a call only with the outcome
that was attested for it; a proof only under a head whose signature holds. Long reads (the audit, replaying decisions)
take a snapshot in a thread of their own, so that calls go on beside them. Nothing here changes the journal; the search
index is only made to follow it.

Not here: how a door shows it, homes without an installation (cli/journal_home).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from palyra.canon import Json
from palyra.errors import StateError, TrustError
from palyra.journal.audit import Report
from palyra.journal.lookup import TREE_SIZE, Lookup, Rows
from palyra.journal.proof import make_proof
from palyra.journal.search import Page, Question
from palyra.journal.store import checked_call, verify_journal
from palyra.journal.tree import Tree
from palyra.model.record import Checkpoint, Entry, Owner, StoredCall
from palyra.state.anchors import Anchor, anchors, with_flooded
from palyra.state.connection import snapshot
from palyra.state.db import read_home
from palyra.state.sealed import SealedBodies
from palyra.state.search import catch_up, indexed_until, search
from palyra.state.writer import Writer
from palyra.values import dataclass
from palyra.wiring.history import check_decisions

BEHIND = 512
"""Entries the index may lack before a question brings it up to date; they are read one by one meanwhile."""
BATCHES_AT_ONCE = 64
BATCH = 256
"""Calls under way write in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    report: Report
    anchors: tuple[Anchor, ...]
    """What witnesses hold of this journal."""


class JournalDesk:
    def __init__(self, writer: Writer, *, is_alive: Callable[[Owner], bool]) -> None:
        self._writer = writer
        self._is_alive = is_alive

    @property
    def lookup(self) -> Lookup:
        home = self._writer.home
        return Lookup(self._writer.rows, home.verifier, SealedBodies(self._writer.rows, home.segments).body)

    async def page(self, question: Question, *, count: int, before: int | None = None) -> Page:
        """Newest first."""
        if not question.asks:
            entries = tuple(reversed(self.lookup.tail(count, before=before)))
            return Page(entries, entries[-1].index if entries and entries[-1].index > 0 else None)
        await self.follow()
        return search(self._writer.rows, question, lookup=self.lookup, count=count, before=before)

    async def follow(self) -> None:
        """Bring the index up to date, a few batches at a time; what it still lacks is read entry by entry."""
        size = self._writer.rows(TREE_SIZE)[0][0]
        if size - indexed_until(self._writer.rows) >= BEHIND:
            with contextlib.suppress(StateError):
                await asyncio.to_thread(catch_up, self._writer, batches=BATCHES_AT_ONCE, size=BATCH)

    def entry(self, index: int) -> Entry | None:
        return self.lookup.entry(index)

    def of_call(self, call_id: str) -> tuple[Entry, ...]:
        return self.lookup.by_call(call_id)

    def call(self, call_id: str) -> StoredCall | None:
        """`StateError` where what is kept of it is not what was stored."""
        return checked_call(self.lookup, call_id, self._writer.home.keys)

    def head(self) -> Checkpoint | None:
        """The newest head, its signature checked; None for an empty journal."""
        newest = self.lookup.checkpoint()
        return None if newest is None else checked_head(newest, self._writer.home.keys.open)

    def proof(self, call_id: str) -> dict[str, Json] | None:
        """What `palyra verify` checks with a public key alone; None for a call the journal does not show."""
        entries, head = self.of_call(call_id), self.head()
        if not entries or head is None or not all(entry.body for entry in entries):
            return None
        return make_proof(call_id, entries, head, tree=Tree(self._writer.rows), keys=self._writer.home.keys)

    async def verify(self, *, every_signature: bool = False) -> Audited:
        """The whole audit, against everything witnesses have seen."""
        audit = audit_server if self._writer.database.is_far else _audit_file
        return await asyncio.to_thread(audit, self._writer, self._is_alive, every_signature)

    async def verify_decisions(self) -> tuple[int, list[tuple[str, str]]]:
        """Every recorded decision made again: how many, and (call id, what is wrong) for each misfit."""
        return await asyncio.to_thread(_decisions, self._writer)


def checked_head(newest: Checkpoint, open_note: Callable[[str], Checkpoint]) -> Checkpoint:
    try:
        return open_note(newest.note)
    except TrustError as error:
        raise StateError(f"The newest checkpoint is not valid: {error}", "Run: palyra journal verify") from error


def rows_in(connection: sqlite3.Connection) -> Rows:
    """Rows of a snapshot, for whoever reads by a function."""

    def rows(sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"The database cannot be read: {error}.", "Run: palyra journal verify") from error

    return rows


def audit_home(root: Path, is_alive: Callable[[Owner], bool], every_signature: bool) -> Audited:  # noqa: FBT001
    home = read_home(root)
    with snapshot(home.database) as connection:
        seen = tuple(anchors(rows_in(connection), home.verifier.name))
    known = [head.note for anchor in seen for head in anchor.heads]
    report = verify_journal(home, is_alive=is_alive, known=known, every_signature=every_signature)
    return Audited(report=with_flooded(report, seen), anchors=seen)


def _audit_file(writer: Writer, is_alive: Callable[[Owner], bool], every_signature: bool) -> Audited:  # noqa: FBT001
    return audit_home(writer.home.root, is_alive, every_signature)


def audit_server(writer: Writer, is_alive: Callable[[Owner], bool], every_signature: bool) -> Audited:  # noqa: FBT001
    """The same, of a cluster's journal."""
    from palyra.cluster.postgres import PostgresDatabase
    from palyra.cluster.verifying import verify_cluster

    assert isinstance(writer.database, PostgresDatabase)
    with view_of(writer) as rows:
        seen = tuple(anchors(rows, writer.home.verifier.name))
    report = verify_cluster(
        writer.database.url,
        writer.home.root,
        is_alive=is_alive,
        known=[head.note for anchor in seen for head in anchor.heads],
        every_signature=every_signature,
        segments=writer.home.sealed_in,
    )
    return Audited(report=report, anchors=seen)


@contextlib.contextmanager
def view_of(writer: Writer) -> Iterator[Rows]:
    """One unchanging view of where the state lies; nothing waits for it."""
    if not writer.database.is_far:
        with snapshot(writer.home.database) as connection:
            yield rows_in(connection)
        return
    from palyra.cluster import verifying
    from palyra.cluster.postgres import PostgresDatabase

    assert isinstance(writer.database, PostgresDatabase)
    with verifying.snapshot(writer.database.url) as (view, _):
        yield view.rows


def _decisions(writer: Writer) -> tuple[int, list[tuple[str, str]]]:
    with view_of(writer) as rows:
        return check_decisions(rows, Lookup(rows, writer.home.verifier))


# ── as JSON, the same for every door ──


def entry_json(entry: Entry) -> dict[str, Json]:
    try:
        body = orjson.loads(entry.body)
    except orjson.JSONDecodeError:
        body = None
    return {"index": entry.index, "leaf_hash": entry.leaf_hash.hex(), "entry": body}


def call_json(stored: StoredCall, entries: Sequence[Entry]) -> dict[str, Json]:
    return {
        "call_id": stored.call_id,
        "run_id": stored.run_id,
        "principal": stored.principal,
        "status": stored.status,
        "entries": [entry_json(entry) for entry in entries],
        "outcome": orjson.loads(stored.outcome) if stored.outcome else None,
        "details": orjson.loads(stored.details) if stored.details else None,
        "receipt": stored.recorded.receipt.as_json() if stored.recorded else None,
    }


def report_json(report: Report, seen: Sequence[Anchor]) -> dict[str, Json]:
    return {
        "ok": report.sound,
        **{name: getattr(report, name) for name in ("entries", "checkpoints", "open_calls", "anchored")},
        "unanchored": report.entries - report.anchored,
        "witnesses": [
            {"name": one.name, "size": None if one.head is None else one.head.size, "problem": one.problem}
            for one in seen
        ],
        "findings": [{"code": f.code, "index": f.index, "detail": f.detail} for f in report.findings],
    }
