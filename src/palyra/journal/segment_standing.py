"""Sealed files of old entries, held against what the entries say of them.

Found: a row of a file that nobody sealed, that names another file's digest, or calls one present that was removed, and
a file that is no longer, to the byte, what was sealed: its header and its end are hashed by no leaf, and whoever is
handed the file to verify needs both. Acts of older versions may say less, which is not compared then. Files are read
only in a journal in which nothing else was found, by the length that its signed entry says: one that somebody made
endless keeps nobody waiting.

Not here: the entries in the file (state/rows), which of them are gone (journal/audit_pruned).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from palyra.canon import Json
from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.values import dataclass

_Place = tuple[Json, Json]
"""first and count"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    first: int
    count: int
    said: Mapping[str, object]
    """As the act names its details: `sha256` and `bytes`."""
    is_present: bool
    sha256: Callable[[int], str]
    """Of the file itself, if it has that length."""


class SegmentStanding:
    def __init__(self) -> None:
        self._sealed: dict[_Place, Mapping[str, Json]] = {}
        self._removed: set[_Place] = set()

    def read(self, view: EntryView) -> None:
        if view.act not in (ActKind.SEGMENT_SEALED, ActKind.ENTRIES_PRUNED):
            return
        details = view.predicate.get("details")
        said = details if isinstance(details, Mapping) else {}
        first, count = said.get("first"), said.get("count")
        if not isinstance(first, int) or not isinstance(count, int):
            return
        if view.act == ActKind.SEGMENT_SEALED:
            self._sealed[first, count] = said
        else:
            self._removed.add((first, count))

    def check(self, rows: Iterable[SegmentRow], *, is_sound: Callable[[], bool]) -> Iterator[str]:
        for row in rows:
            place = (row.first, row.count)
            told = self._sealed.pop(place, None)
            name = f"entries {row.first} to {row.first + row.count - 1}"
            same = told is not None and all(told.get(key, value) == value for key, value in row.said.items())
            if told is None or not same or row.is_present is (place in self._removed):
                yield f"The row of the sealed file of {name} is not what its entries say."
            elif row.is_present and is_sound() and not _is_file(told, row):
                yield f"The sealed file of {name} is not the one that was sealed."
        for first, count in self._sealed:
            yield f"The row of the sealed file of {count} entries from {first} on is missing."


def _is_file(told: Mapping[str, Json], row: SegmentRow) -> bool:
    size, sha256 = told.get("bytes"), told.get("sha256")
    return not isinstance(size, int) or sha256 is None or row.sha256(size) == sha256
