"""Questions to the journal: which entries, newest first, a page at a time; as one SQL statement over its indexes.

Rules: every filter has an index of its own that ends with the entry's place, so a page costs what it shows and not what
there is; times go by the minute in which entries were written first and last, because a clock may go back; the index
only finds: what is shown is read from the entry itself and held against the question again. Text is words of an entry
(tool, act, subject, principal, status, policies …): whole names, or parts of them; no value of a call is among them.

Not here: the tables that are searched and how they follow the journal (state/search).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import orjson

from palyra.canon import Json
from palyra.journal.chain import ACT, INTENT, RESULT
from palyra.journal.entry import EntryView, parse_entry
from palyra.journal.lookup import Rows, as_entry
from palyra.model.record import Entry
from palyra.values import dataclass

MINUTE_MS = 60 * 1000
MAX_WORDS = 16
NAMES = {"intent": INTENT, "result": RESULT, "act": ACT}
_NO_END = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """All of these must hold; None and "" ask for nothing."""

    since_unix_ms: int | None = None
    until_unix_ms: int | None = None
    principal: str = ""
    run_id: str = ""
    tool: str = ""
    status: str = ""
    reason: str = ""
    kind: str = ""
    """intent, result or act"""
    text: str = ""

    @property
    def asks(self) -> bool:
        return self != Question()


@dataclass(frozen=True, slots=True)
class Page:
    entries: tuple[Entry, ...]
    """Newest first."""
    next: int | None
    """The cursor: pass it as `before` to go on; None at the end."""


def facts_of(view: EntryView) -> dict[str, str | None]:
    """What an entry is found by."""
    said = view.predicate
    names = ("principal", "tool", "status", "reason", "run_id")
    found = {name: value if isinstance(value := said.get(name), str) else None for name in names}
    if view.kind == ACT:
        found["principal"] = said.get("actor") if isinstance(said.get("actor"), str) else None
        found["tool"] = said.get("act") if isinstance(said.get("act"), str) else None
    return found | {"kind": next((name for name, kind in NAMES.items() if kind == view.kind), "")}


def words_of(view: EntryView) -> str:
    """Whole names and their parts, lower case, each once."""
    said = view.predicate
    decision, context = _table(said.get("decision")), _table(said.get("context"))
    texts: list[Json] = [said.get(name) for name in ("act", "actor", "tool", "principal", "status", "reason")]
    texts += [said.get("executor"), said.get("skill"), *context.values()]
    texts += [decision.get("effect"), *_items(decision.get("policies"))]
    if view.kind == ACT:
        texts.append(view.subject)
    words: dict[str, None] = {}
    for text in texts:
        if isinstance(text, str):
            for word in _words(text):
                words[word] = None
                words.update(dict.fromkeys(filter(None, re.split(r"[._\-:/@]", word))))
    return " ".join(words)


def _table(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Json) -> list[Json]:
    return list(value) if isinstance(value, list) else []


def _words(text: str) -> list[str]:
    """As the index takes them apart: ASCII letters, digits and the signs that hold names together."""
    return re.findall(r"[a-z0-9._\-:/@]+", text.lower()[:512])


def ask(
    rows: Rows,
    question: Question,
    *,
    count: int,
    before: int | None = None,
    indexed: int,
    whole: Callable[[Entry], Entry],
) -> Page:
    """One page. `indexed` is how far the index has followed the journal; what is newer is read entry by entry."""
    end = _NO_END if before is None else before
    holds = _Test(question)
    found: list[Entry] = []
    if question.text.strip() and not _words(question.text):  # no entry has such a word
        return Page((), None)
    for candidate in _candidates(rows, question, end=end, indexed=indexed, count=count):
        entry = candidate if candidate.body else whole(candidate)
        if holds(entry) and (not holds.may_mislead(entry, indexed) or holds.exactly(entry)):
            found.append(entry)
            if len(found) == count:
                return Page(tuple(found), entry.index if entry.index > 0 else None)
    return Page(tuple(found), None)


def _candidates(rows: Rows, question: Question, *, end: int, indexed: int, count: int) -> Iterator[Entry]:
    tail = "SELECT idx, leaf_hash, body FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx DESC LIMIT ?"
    while end > indexed:
        part = rows(tail, (indexed, end, 256))
        if not part:
            break
        yield from map(as_entry, part)
        end = part[-1][0]
    end = min(end, indexed)
    sql, given = write_sql(question)
    while end > 0:
        part = rows(sql, (*given, end, count))
        yield from map(as_entry, part)
        if len(part) < count:
            return
        end = part[-1][0]


def write_sql(question: Question) -> tuple[str, tuple[object, ...]]:
    """A statement that takes the given values, a place to end before, and how many."""
    words = _words(question.text)[:MAX_WORDS]
    names = [name for name in _INDEXES if getattr(question, name)]
    # Without statistics SQLite would guess; the first of these tells the fewest entries.
    tables, place = f"search s INDEXED BY search_{_INDEXES[names[0]]}" if names else "search s", "s.idx"
    wheres: list[str] = []
    given: list[object] = []
    if words:
        tables, place = "search_words w CROSS JOIN search s ON s.idx = w.rowid", "w.rowid"
        wheres.append("w.search_words MATCH ?")
        given.append(" AND ".join(f'"{word}"' for word in words))
    for name in names:
        wheres.append(f"s.{name} = ?")
        given.append(getattr(question, name))
    if question.since_unix_ms is not None:
        wheres += ["s.at_unix_ms >= ?", f"{place} >= ({_FIRST})"]
        given += [question.since_unix_ms, question.since_unix_ms // MINUTE_MS]
    end = "?"
    if question.until_unix_ms is not None:
        wheres.append("s.at_unix_ms < ?")
        given += [question.until_unix_ms, question.until_unix_ms // MINUTE_MS]
        end = f"min(({_LAST_ONE}), ?)"  # one bound: of two SQLite would walk from the wrong one
    where = " AND ".join([*wheres, f"{place} < {end}"])
    from_where = f"{tables} CROSS JOIN entries e ON e.idx = s.idx WHERE {where}"
    columns = "e.idx, e.leaf_hash, e.body"
    return f"SELECT {columns} FROM {from_where} ORDER BY {place} DESC LIMIT ?", tuple(given)  # noqa: S608


_FIRST = (
    "SELECT coalesce((SELECT first FROM search_minutes WHERE minute >= ? ORDER BY minute LIMIT 1), 4611686018427387904)"
)
_LAST_ONE = "SELECT coalesce((SELECT last + 1 FROM search_minutes WHERE minute <= ? ORDER BY minute DESC LIMIT 1), 0)"
_INDEXES = {"run_id": "run", "reason": "reason", "principal": "principal", "tool": "tool", "status": "status",
            "kind": "kind"}  # fmt: skip
_SPELLED = {"principal": ("principal", "actor"), "tool": ("tool", "act")}
_AT = b'"at_unix_ms":'
_OF_AN_ACT = f'"predicateType":"{ACT}"'.encode()


class _Test:
    """The index is rows, and rows can be edited: the entry's own bytes decide.

    In canonical JSON a quote inside a string is escaped, so `"tool":"x"` stands there only where it is meant.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self._any: list[tuple[bytes, ...]] = []
        for name in _INDEXES:
            if value := getattr(question, name):
                text = orjson.dumps(value if name != "kind" else NAMES.get(value, value))
                spelled = ("predicateType",) if name == "kind" else _SPELLED.get(name, (name,))
                self._any.append(tuple(b'"%b":%b' % (key.encode(), text) for key in spelled))
        self._since = question.since_unix_ms
        self._until = question.until_unix_ms
        self._words = [word.encode() for word in _words(question.text)[:MAX_WORDS]]

    def __call__(self, entry: Entry) -> bool:
        body = entry.body
        for spelled in self._any:
            for text in spelled:  # without a generator for each of twenty entries
                if text in body:
                    break
            else:
                return False
        if self._since is not None or self._until is not None:
            at = _time_of(body)
            if at is None or at < (self._since or 0) or (self._until is not None and at >= self._until):
                return False
        if self._words:
            lower = body.lower()
            return all(word in lower for word in self._words)
        return bool(body)

    @staticmethod
    def may_mislead(entry: Entry, indexed: int) -> bool:
        """The index has not taken it apart yet; or it is an act, whose details may name somebody else."""
        return entry.index >= indexed or _OF_AN_ACT in entry.body

    def exactly(self, entry: Entry) -> bool:
        """The same of what the entry says in its own place."""
        try:
            view = parse_entry(entry.body)
        except ValueError:
            return False
        facts, said = facts_of(view), words_of(view).encode().split()
        asked = (name for name in _INDEXES if getattr(self._question, name))
        return all(facts[name] == getattr(self._question, name) for name in asked) and all(
            word in said for word in self._words
        )


def _time_of(body: bytes) -> int | None:
    """The place's own: no other object of an entry has a field of this name."""
    at = body.find(_AT)
    number = body[at + len(_AT) : at + len(_AT) + 20].split(b",")[0] if at >= 0 else b""
    return int(number) if number.isdigit() else None


def rows_of(entries: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, int, dict[str, str | None], str]]:
    """(index, time, facts, words) of every entry that can be read; the others cannot be searched for."""
    for index, body in entries:
        try:
            view = parse_entry(body)
        except ValueError:
            continue
        if view.index == index:
            yield index, view.at_unix_ms, facts_of(view), words_of(view)
