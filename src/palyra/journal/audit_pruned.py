"""What retention removed of the journal itself, held against what it said it would: bodies of calls, never of acts.

A sealed file's act says which bodies left the database, when all of them were held against their hashes: how many, and
a digest over their places. Where the file is gone, exactly those are: another one is an act that somebody else removed
behind retention's back, and acts tell of keys, policies, tokens and approvals. Their number alone is not enough: a body
of a call, put back from an old copy or an export, would make up for the act's. The sealing's act itself stands behind
its segment, so it is counted in another one or still has its body.

Not here: the entries that are there (journal/audit).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from palyra.journal.acts import ActKind
from palyra.journal.audit_kept import Deletion
from palyra.journal.chain import ACT
from palyra.journal.entry import EntryView
from palyra.values import dataclass

_NEVER = 1 << 63
ENTRIES_PRUNED = ActKind.ENTRIES_PRUNED.value


class Places:
    """Of bodies that are not in the database, taken in ascending order."""

    def __init__(self) -> None:
        self.count = 0
        self._hasher = hashlib.sha256()

    def add(self, index: int) -> None:
        self.count += 1
        self._hasher.update(index.to_bytes(8, "big"))

    def sha256(self) -> str:
        return self._hasher.hexdigest()


@dataclass(slots=True)
class Pruned:
    deletions: Sequence[Deletion]

    count: int = field(init=False, default=0)
    _gone: dict[tuple[int, int], Places] = field(init=False, default_factory=dict)
    """(first, count) of each removed file → the bodies that are not there."""
    _sealed: dict[tuple[int, int], tuple[object, object]] = field(init=False, default_factory=dict)
    _ordered: list[tuple[int, int]] = field(init=False, default_factory=list)
    _told: set[tuple[int, int]] = field(init=False, default_factory=set)
    _uses_told: set[tuple[int, int]] = field(init=False, default_factory=set)
    _at: tuple[int, int] = field(init=False, default=(0, 0))

    def __post_init__(self) -> None:
        self._gone = {(one.first, one.count): Places() for one in self.deletions if one.act == ENTRIES_PRUNED}

    @property
    def end(self) -> int:
        """Entries of calls below this place may have lost their bodies."""
        return max((first + count for first, count in self._gone), default=0)

    def take(self, index: int) -> bool:
        """Whether the body of this entry may be gone; it is counted then."""
        if not self._at[0] <= index < sum(self._at):
            # There may be as many as somebody put there, and each is looked for among all the others.
            self._ordered = self._ordered or sorted(self._gone)
            at = bisect_right(self._ordered, (index, _NEVER)) - 1
            self._at = self._ordered[at] if at >= 0 else (0, 0)
            if not self._at[0] <= index < sum(self._at):
                self._at = (0, 0)
                return False
        self._gone[self._at].add(index)
        self.count += 1
        return True

    def read(self, view: EntryView) -> None:
        """An act of sealing says which bodies it moved; one of an older Palyra says how many, or not even that."""
        details = view.predicate.get("details")
        if view.kind != ACT or view.act != ActKind.SEGMENT_SEALED or not isinstance(details, Mapping):
            return
        first, count = details.get("first"), details.get("count")
        if isinstance(first, int) and isinstance(count, int):
            self._sealed[first, count] = details.get("bodies"), details.get("places_sha256")

    def tell(self, first: int, count: int) -> None:
        """The act of this removal told what its runs had used."""
        self._told.add((first, count))

    def tell_uses(self, first: int, count: int) -> None:
        """The act of this removal told how often its calls had used approvals."""
        self._uses_told.add((first, count))

    @property
    def uncounted(self) -> int:
        """Uses of approvals by calls below this place may be gone without a word: older versions told of none."""
        return max((first + count for first, count in self._gone if (first, count) not in self._uses_told), default=0)

    @property
    def untold(self) -> int:
        """Bodies of which no act told so: those that older versions removed."""
        return sum(gone.count for place, gone in self._gone.items() if place not in self._told)

    def findings(self) -> Iterator[tuple[int, str]]:
        """(the entry, what is wrong)"""
        for (first, count), gone in self._gone.items():
            last = first + count - 1
            if (first, count) not in self._sealed:
                yield first, f"Entries {first} to {last} were removed, and no entry says that they were sealed."
                continue
            bodies, places = self._sealed[first, count]
            if isinstance(bodies, int) and bodies != gone.count:
                yield first, f"Of entries {first} to {last}, {bodies} were sealed away, and {gone.count} are gone."
            elif places is not None and places != gone.sha256():
                yield first, f"Of entries {first} to {last}, others are gone than were sealed away."
