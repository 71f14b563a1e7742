"""A stored entry, read back strictly: exactly the bytes that were written, or a sentence about why not.

Rules: whoever can edit the file must not find a second spelling of an entry that means something else, so an entry is
written again and compared; a fraction, a key that is not ASCII, another field or another shape is no entry of ours.

Not here: what entries say and how they are made (chain), whether they belong to the tree (audit).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from palyra.canon import MAX_DEPTH, Json, sha256_hex
from palyra.journal.chain import KINDS, MAX_ENTRY_BYTES, STATEMENT_TYPE

_PLACE = frozenset({"index", "sequence", "at_unix_ms"})
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


class EntryView(NamedTuple):
    """A stored entry, read back strictly. A tuple, because an audit makes a million of them."""

    kind: str
    index: int  # type: ignore[assignment]  # a tuple has a method of that name, which nobody needs here
    sequence: int | None
    at_unix_ms: int
    subject: str
    predicate: Mapping[str, Json]

    @property
    def call_id(self) -> str | None:
        return _text(self.predicate.get("call_id"))

    @property
    def act(self) -> str:
        """Empty where there is none, or something else than a name: who edits an entry chooses what stands there."""
        return _text(self.predicate.get("act")) or ""

    @property
    def run_id(self) -> str | None:
        return _text(self.predicate.get("run_id"))


def parse_entry(body: bytes) -> EntryView:
    """Strict: exactly the bytes `entry_bytes` makes. ValueError with a sentence otherwise.

    Writing the value again and comparing rules out duplicate keys, spaces, other escapes and trailing data.
    """
    if len(body) > MAX_ENTRY_BYTES:
        raise ValueError("the entry is longer than 64 KiB")
    try:
        statement = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError("the entry is not JSON") from error
    if type(statement) is not dict:
        raise ValueError("the entry is not a statement of ours")
    try:
        again = orjson.dumps(statement, option=_CANONICAL)
    except orjson.JSONEncodeError:
        again = b""
    # Bytes that are all ASCII have ASCII keys: a canonical string is escaped only where it must be.
    if again != body or not _is_strict(statement, 0) or not (body.isascii() or _has_ascii_keys(statement)):
        raise ValueError("the entry's bytes are not canonical")
    try:
        kind, (subject,), predicate = statement["predicateType"], statement["subject"], statement["predicate"]
        name, place, named = subject["name"], predicate["place"], predicate.get("execution_sha256")
        digest = named if type(named) is str else sha256_hex(name.encode("utf-8", "surrogatepass"))
        known = (
            kind in KINDS
            and type(name) is str
            and len(statement) == 4
            and statement["_type"] == STATEMENT_TYPE
            and subject == {"name": name, "digest": {"sha256": digest}}
            and type(predicate) is dict
            and place.keys() == _PLACE
            and _is_place(place)
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError("the entry is not a statement of ours") from error
    if not known:
        raise ValueError("the entry is not a statement of ours")
    return EntryView(kind, place["index"], place["sequence"], place["at_unix_ms"], name, predicate)


def _is_strict(value: Any, depth: int) -> bool:
    """No fraction, not too deep; `canon.canonical_strict`'s other rules are held by how the bytes are compared."""
    if depth >= MAX_DEPTH:
        return False
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is dict or kind is list:
            if (item or depth + 2 > MAX_DEPTH) and not _is_strict(item, depth + 1):
                return False
        elif kind is float:
            return False
    return True


def _has_ascii_keys(value: Any) -> bool:
    if type(value) is dict:
        return all(map(str.isascii, value)) and all(map(_has_ascii_keys, value.values()))
    return type(value) is not list or all(map(_has_ascii_keys, value))


def _is_place(place: Mapping[str, Any]) -> bool:
    sequence = place["sequence"]
    return type(place["index"]) is type(place["at_unix_ms"]) is int and (sequence is None or type(sequence) is int)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
