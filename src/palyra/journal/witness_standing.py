"""Witnesses of this journal, and heads it took as a witness of others, held against the entries that tell of them.

Found: a witness that somebody took out of its row, or led to another place, so that nobody is asked what was seen
before; a head of another journal that was set back in its row, so that a rollback would be taken. Rows are unsigned,
and the acts `witness.added` and `head.witnessed` say what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.canon import sha256_hex
from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.values import dataclass

_ACTS = {ActKind.WITNESS_ADDED.value: "witness", ActKind.HEAD_WITNESSED.value: "origin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRow:
    """`what` is witness/NAME or origin/ORIGIN, as the act's subject has it."""

    what: str
    said: Mapping[str, object]


def place_sha256(place: str) -> str:
    """A path may tell of people and machines: the entry has its digest."""
    return sha256_hex(place.encode("utf-8", "surrogateescape"))


class WitnessStanding:
    def __init__(self) -> None:
        self._newest: dict[str, Mapping[str, object]] = {}

    def read(self, view: EntryView) -> None:
        noun = _ACTS.get(view.act)
        if noun is not None and view.subject.startswith(f"{noun}/"):
            details = view.predicate.get("details")
            self._newest[view.subject] = details if isinstance(details, Mapping) else {}

    def check(self, rows: Iterable[WitnessRow]) -> Iterator[str]:
        """What an act of an older version does not say is not compared."""
        for row in rows:
            told = self._newest.pop(row.what, None)
            if told is None or any(row.said.get(name) != value for name, value in told.items() if name in row.said):
                yield f"The row of {row.what[:120]} is not what its newest entry says."
        for what in self._newest:
            yield f"The row of {what[:120]} is missing."
