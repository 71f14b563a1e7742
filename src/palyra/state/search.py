"""The index that questions are answered by: follows the journal when somebody asks, never on the path of a call.

Rules: it is derived, and can be thrown away and made again at any time (`forget`); catching up is a transaction of its
own through the one writer, a batch at a time, so that calls go on between; where nothing may be written, what is not
indexed yet is read entry by entry. What it holds is not evidence: journal/search reads the entries themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palyra.journal.lookup import Lookup, Rows
from palyra.journal.merkle import leaf_hash
from palyra.journal.search import MINUTE_MS, Page, Question, ask, rows_of
from palyra.model.record import Entry
from palyra.state.sealed import SealedBodies
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

BATCH = 4096
MERGED_PAGES = 512

_INDEX = """INSERT INTO search VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (idx) DO UPDATE SET
                at_unix_ms = excluded.at_unix_ms, kind = excluded.kind, run_id = excluded.run_id,
                principal = excluded.principal, tool = excluded.tool, status = excluded.status,
                reason = excluded.reason"""
_MINUTE = """INSERT INTO search_minutes VALUES (?, ?, ?) ON CONFLICT (minute) DO UPDATE SET last =
                 CASE WHEN search_minutes.last < excluded.last THEN excluded.last ELSE search_minutes.last END"""


def indexed_until(rows: Rows) -> int:
    """Entries below this place are in the index."""
    found = rows("SELECT value FROM meta WHERE name = 'indexed'", ())
    return int(found[0][0]) if found and found[0][0].isascii() and found[0][0].isdigit() else 0


def catch_up(writer: Writer, *, batches: int | None = None, size: int = BATCH) -> int:
    """Index what came since; returns how many entries that were. Small batches let others write in between."""
    done = 0
    while batches is None or batches > 0:
        count, _ = writer.commit_now(lambda tx: _next_batch(tx, size, writer.home.segments))
        done += count
        batches = None if batches is None else batches - 1
        if count < size:
            break
    if done:
        writer.commit_now(_tidy)
    return done


def _tidy(tx: Transaction) -> None:
    """One list a word instead of many pieces, whenever an eighth came since: then a page deep down is found at once."""
    found = tx.rows("SELECT value FROM meta WHERE name = 'tidied'", ())
    size, tidied = indexed_until(tx.rows), int(found[0][0]) if found else 0
    if size - tidied > max(BATCH, size // 8):
        tx.execute("INSERT INTO search_words (search_words) VALUES ('optimize')")
        tx.keep_meta("tidied", str(size))


def forget(writer: Writer) -> None:
    """Throw the index away; the next question makes it again."""

    def work(tx: Transaction) -> None:
        for table in ("search", "search_minutes", "meta WHERE name IN ('indexed', 'tidied')"):
            tx.execute(f"DELETE FROM {table}")  # noqa: S608  # texts of our own
        tx.execute("INSERT INTO search_words (search_words) VALUES ('delete-all')")

    writer.commit_now(work)


def words_in(writer: Writer, first: int, end: int) -> list[tuple[int, str]]:
    """What the index holds of sealed entries there, by what their bodies say: to be taken out when these go."""
    indexed = min(end, indexed_until(writer.rows))
    sql = "SELECT idx, leaf_hash FROM entries WHERE idx >= ? AND idx < ? AND body IS NULL ORDER BY idx"
    sealed = SealedBodies(writer.rows, writer.home.segments)
    bodies = ((index, leaf, sealed.body(index)) for index, leaf in writer.rows(sql, (first, indexed)))
    whole = [(index, body) for index, leaf, body in bodies if leaf_hash(body) == leaf]
    return [(index, words) for index, _, _, words in rows_of(whole)]


def take_out(tx: Transaction, words: Sequence[tuple[int, str]], first: int, end: int) -> None:
    """Entries whose bodies are gone are found no more, and nothing tells of them; acts stay."""
    gone = "idx >= ? AND idx < ? AND body IS NULL"
    tx.execute(f"DELETE FROM search WHERE idx IN (SELECT idx FROM entries WHERE {gone})", (first, end))  # noqa: S608
    for word in words:
        tx.execute("INSERT INTO search_words (search_words, rowid, words) VALUES ('delete', ?, ?)", word)


def overwrite_words(writer: Writer) -> None:
    """What was taken out still stands in the lists of words until they are written anew: by steps, others between."""
    if writer.database.is_far:
        return
    pages = -MERGED_PAGES  # from the beginning; then on from there

    def step(tx: Transaction) -> int:
        before = tx.rows("SELECT total_changes()")[0][0]
        tx.execute("INSERT INTO search_words (search_words, rank) VALUES ('merge', ?)", (pages,))
        changed: int = tx.rows("SELECT total_changes()")[0][0] - before
        return changed

    while writer.commit_now(step)[0] > 1:
        pages = MERGED_PAGES


def _next_batch(tx: Transaction, size: int, segments: Path) -> int:
    first = indexed_until(tx.rows)
    end = min(tx.frontier.size, first + size)
    if end <= first:
        return 0
    sql, sealed = (
        "SELECT idx, body FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx",
        SealedBodies(tx.rows, segments),
    )
    # Who asks for the first time after old entries were sealed must find those too.
    bodies = [(index, sealed.body(index) if body is None else body) for index, body in tx.rows(sql, (first, end))]
    minutes: dict[int, tuple[int, int]] = {}
    for index, at, facts, words in rows_of(bodies):
        row = (index, at, *(facts[name] for name in ("kind", "run_id", "principal", "tool", "status", "reason")))
        tx.execute(_INDEX, row)
        tx.execute("INSERT INTO search_words (rowid, words) VALUES (?, ?)", (index, words))
        low, _ = minutes.get(at // MINUTE_MS, (index, index))
        minutes[at // MINUTE_MS] = (low, index)
    for minute, (low, high) in sorted(minutes.items(), key=lambda item: item[1]):
        _keep_minute(tx, minute, low, high)
        tx.execute("UPDATE search_minutes SET last = ? WHERE minute > ? AND last < ?", (high, minute, high))
    tx.keep_meta("indexed", str(end))
    return end - first


def _keep_minute(tx: Transaction, minute: int, low: int, high: int) -> None:
    """Batches come in the order of the tree: an entry is newer than all there are, so only a minute that lies before
    others (the clock went back) must look at them."""
    after = tx.rows("SELECT first FROM search_minutes WHERE minute > ? ORDER BY minute LIMIT 1", (minute,))
    before = tx.rows("SELECT last FROM search_minutes WHERE minute < ? ORDER BY minute DESC LIMIT 1", (minute,))
    first = min(low, after[0][0]) if after else low
    last = max(high, before[0][0]) if before else high
    tx.execute(_MINUTE, (minute, first, last))


def search(rows: Rows, question: Question, *, lookup: Lookup, count: int, before: int | None = None) -> Page:
    """One page, newest first, from whatever is indexed and the entries behind it."""

    def whole(entry: Entry) -> Entry:
        return lookup.entry(entry.index) or entry

    return ask(rows, question, count=count, before=before, indexed=indexed_until(rows), whole=whole)
