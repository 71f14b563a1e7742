"""An entry written around members that were made ahead, if there are any: most of what a call's entries say is the
same each time.

Exactly the bytes that `canon.canonical_strict` makes of the whole statement, or none. Not here: what an entry says, and
how it is written otherwise (chain).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import orjson

from palyra.canon import Json, fits_around
from palyra.model.record import EntryDraft

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_SORTED_WHOLE = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def write_around(draft: EntryDraft, predicate: Mapping[str, Json]) -> bytes:
    """`predicate` is the draft's with its place and the macs, which are plain. Empty where only the whole value can
    tell how it is written."""
    subject, fixed = draft.subject, draft.fixed
    named = predicate.get("execution_sha256")
    try:
        digest = named if isinstance(named, str) else sha256(subject.encode()).hexdigest()
        statement = {
            "_type": STATEMENT_TYPE,
            "predicate": {**predicate, **fixed} if fixed else predicate,
            "predicateType": draft.predicate_type,
            "subject": [{"digest": {"sha256": digest}, "name": subject}],
        }
        body = orjson.dumps(statement, option=_SORTED_WHOLE)
    except (UnicodeEncodeError, orjson.JSONEncodeError, TypeError):
        return b""
    return body if body.isascii() and fits_around(draft.predicate, fixed) else b""
