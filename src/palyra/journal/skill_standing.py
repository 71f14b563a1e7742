"""Skills and pinned keys, held against what the entries say of them.

Found: a row that was made, or put back as it stood before a later entry: a skill that was quarantined and is enabled
again without anybody having enabled it, a key that was revoked and counts again. Rows cannot be made up by who lacks
the installation's key, but an old one is signed too: only the order of the entries tells that it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.journal.entry import EntryView
from palyra.values import dataclass

_ACTS = ("skill.changed", "trust.changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRow:
    """A skill's standing (`what` is its payload), or a pinned key (`what` is publisher and key id)."""

    what: str
    said: str
    """The status; of a key `trusted`, `retired` or `revoked`."""
    entry: int


class SkillStanding:
    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, str]] = {}

    def read(self, view: EntryView) -> None:
        act = view.act
        if act not in _ACTS:
            return
        details = view.predicate.get("details")
        told = details if isinstance(details, Mapping) else {}
        if act == "skill.changed":
            what = str(told.get("sha256"))
        else:
            what = f"{view.subject.removeprefix('publisher/')} {told.get('key_id')}"
        self._newest[what] = (view.index, str(told.get("after")))

    def check(self, rows: Iterable[SkillRow], *, from_index: int) -> Iterator[str]:
        """`from_index`: entries before it were removed by retention, and rows of theirs cannot be judged."""
        for row in rows:
            told = self._newest.pop(row.what, None)
            if told is None and row.entry < from_index:
                continue
            if told != (row.entry, row.said):
                yield f"The row of {row.what[:120]} does not match its newest entry."
        for what in self._newest:
            yield f"The row of {what[:120]} is missing."
