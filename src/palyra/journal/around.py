"""An entry written around members that were made ahead, if there are any: most of what a call's entries say is the
same each time, and what stands around the predicate always is.

Exactly the bytes that `canon.canonical_strict` makes of the whole statement, or none. Not here: what an entry says, and
how it is written otherwise (chain).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from palyra.canon import Json, canonical_around
from palyra.late import late
from palyra.model.record import EntryDraft

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"

_PLAIN_SUBJECT = late(r"[A-Za-z0-9/._-]+")
_STATEMENT = (
    b'{"_type":"%b","predicate":%%b,"predicateType":"%%b","subject":[{"digest":{"sha256":"%%b"},"name":"%%b"}]}'
    % STATEMENT_TYPE.encode()
)


def write_around(draft: EntryDraft, predicate: Mapping[str, Json]) -> bytes:
    """`predicate` is the draft's with its place. Empty where a text may need escapes."""
    if not _PLAIN_SUBJECT.fullmatch(draft.subject):
        return b""
    inner = canonical_around(predicate, draft.fixed)
    named = predicate.get("execution_sha256")
    if inner is None or (isinstance(named, str) and not named.isalnum()):
        return b""
    subject = draft.subject.encode()
    digest = named if isinstance(named, str) else sha256(subject).hexdigest()
    return _STATEMENT % (inner, draft.predicate_type.encode(), digest.encode(), subject)
