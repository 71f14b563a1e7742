"""Logins of the console, held against what the entries say of them.

Found: a login that nobody made, one that became another's, was prolonged or unhooked from the token it was opened with,
and one that counts again after it was ended. Rows are unsigned, and the acts `session.opened` and `session.ended` say
what they hold. A row that is gone is no finding: logins end by themselves. Not found: one that went unused for too long
and is called used again in its row; it ends at its time all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.canon import sha256_hex
from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    name: str
    said: Mapping[str, object]
    """As the act that opened it names its details."""


def session_name(digest: bytes) -> str:
    """How entries name it: by a digest of what its row holds, which is itself one of 32 random bytes."""
    return sha256_hex(b"palyra session\0" + digest)


class SessionStanding:
    def __init__(self) -> None:
        self._opened: dict[str, Mapping[str, object]] = {}

    def read(self, view: EntryView) -> None:
        act, name = view.act, view.subject.removeprefix("session/")
        if act == ActKind.SESSION_OPENED:
            details = view.predicate.get("details")
            self._opened[name] = details if isinstance(details, Mapping) else {}
        elif act == ActKind.SESSION_ENDED:
            self._opened.pop(name, None)

    def check(self, rows: Iterable[SessionRow]) -> Iterator[str]:
        for row in rows:
            if self._opened.get(row.name) != row.said:
                yield f"A login of {str(row.said.get('principal'))[:80]} is not what the entries say."
