"""Figures over the last hours, for whoever watches: calls by hour and how they ended, reasons, tools, principals.

Counted from the journal's search index, and from the entries behind it that the index lacks; at most so many of the
newest entries, and the answer says when that was not all of it. Read from a snapshot: nothing waits for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from palyra.canon import Json
from palyra.journal.lookup import TREE_SIZE, Rows
from palyra.journal.search import MINUTE_MS, rows_of
from palyra.state.search import indexed_until
from palyra.state.writer import Writer
from palyra.values import dataclass
from palyra.wiring.journal_desk import view_of

HOUR_MS = 60 * MINUTE_MS
MOST_ENTRIES = 200_000
ENDINGS = ("completed", "refused", "waiting", "failed")
"""How a call's status counts: waits for a person, or ended some other way."""
_KINDS = {"completed": "completed", "refused": "refused", "pending_approval": "waiting"}

_COUNT = """SELECT at_unix_ms / ?, status, reason, tool, principal, count(*) FROM search
            WHERE idx >= ? AND kind = 'result' AND at_unix_ms >= ? GROUP BY 1, 2, 3, 4, 5"""
_FIRST = "SELECT first FROM search_minutes WHERE minute >= ? ORDER BY minute LIMIT 1"
_BEHIND = "SELECT idx, body FROM entries WHERE idx >= ? AND body IS NOT NULL ORDER BY idx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    begins_unix_ms: int
    counts: tuple[int, ...]
    """In the order of `ENDINGS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    hours: tuple[Hour, ...]
    """Oldest first, without gaps."""
    endings: tuple[tuple[str, int], ...]
    reasons: tuple[tuple[str, int], ...]
    tools: tuple[tuple[str, int], ...]
    principals: tuple[tuple[str, int], ...]
    whole: bool
    """False when only the newest entries were counted."""

    def as_json(self) -> dict[str, Json]:
        return {
            "hours": [
                {"begins_at_unix_ms": hour.begins_unix_ms, **dict(zip(ENDINGS, hour.counts, strict=True))}
                for hour in self.hours
            ],
            **{name: dict(getattr(self, name)) for name in ("endings", "reasons", "tools", "principals")},
            "whole": self.whole,
        }


async def read_figures(writer: Writer, *, now_unix_ms: int, hours: int = 24) -> Figures:
    return await asyncio.to_thread(_read, writer, now_unix_ms, hours)


def _read(writer: Writer, now_unix_ms: int, hours: int) -> Figures:
    with view_of(writer) as rows:
        return count_figures(rows, now_unix_ms=now_unix_ms, hours=hours)


def count_figures(rows: Rows, *, now_unix_ms: int, hours: int) -> Figures:
    last = now_unix_ms // HOUR_MS
    since = (last - hours + 1) * HOUR_MS
    size, indexed = rows(TREE_SIZE, ())[0][0], indexed_until(rows)
    found = rows(_FIRST, (since // MINUTE_MS,))
    wanted = found[0][0] if found else indexed
    first = max(wanted, size - MOST_ENTRIES)
    by_hour: Counter[tuple[int, str]] = Counter()
    tables = {name: Counter[str]() for name in ("endings", "reasons", "tools", "principals")}
    for hour, status, reason, tool, principal, count in _counted(rows, first, since, indexed):
        ending = _KINDS.get(status, "failed")
        by_hour[min(hour, last), ending] += count
        for name, value in (("endings", ending), ("reasons", reason), ("tools", tool), ("principals", principal)):
            if value:
                tables[name][value] += count
    return Figures(
        hours=tuple(
            Hour(begins_unix_ms=hour * HOUR_MS, counts=tuple(by_hour[hour, ending] for ending in ENDINGS))
            for hour in range(last - hours + 1, last + 1)
        ),
        whole=first == wanted,
        **{name: tuple(table.most_common(12)) for name, table in tables.items()},
    )


def _counted(rows: Rows, first: int, since: int, indexed: int) -> Iterator[tuple[int, str, str, str, str, int]]:
    """(hour, status, reason, tool, principal, how many): of the index, then of what it lacks."""
    yield from rows(_COUNT, (HOUR_MS, first, since))
    for _, at, facts, _ in rows_of(rows(_BEHIND, (max(first, indexed),))):
        if facts["kind"] == "result" and at >= since:
            told = (facts[name] or "" for name in ("status", "reason", "tool", "principal"))
            yield (at // HOUR_MS, *told, 1)  # type: ignore[misc]
