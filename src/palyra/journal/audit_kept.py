"""What is kept beside the entries of a call, held against what those entries say.

A claim is all that two entries tell of one call's row and kept values. Claims are plain JSON values in the order of the
tree, so that they may be checked beside the audit, in another process, with the same findings (state/beside).

Found: a row that is missing or was changed; a kept value that is not what its entry commits to, that cannot be opened,
or that is gone though no entry tells who removed it; an artifact that was given to another run than the kept outcome
names it in, or another file. Not found: an artifact that no outcome names, as a crash leaves one. Not here: which calls
there are (journal/audit_calls).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

import orjson

from palyra.canon import Json
from palyra.journal.chain import INTENT, RESULT
from palyra.journal.commitments import SALT_BYTES, mac_of
from palyra.journal.entry import EntryView
from palyra.values import dataclass

MAX_FINDINGS = 1000
ROW = (
    "run_id",
    "tool",
    "principal",
    "intent_index",
    "boot_id",
    "pid",
    "start_ticks",
    "opened_unix_ms",
    "status",
    "reason",
    "result_index",
    "closed_unix_ms",
)
_FIRST = 8
"""So many of a row's fields are told by the call's first entry, the others by its result."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    index: int | None
    """The entry it is about, where it is about one."""
    detail: str


Located = tuple[int, Finding]
"""A finding, and how many entries had been read when it was made: the order in which findings are told."""


class Kept(NamedTuple):
    """A call's row and the values kept beside it; `None` for one that is not there."""

    row: tuple[Json, ...]
    """As `ROW` names its fields."""
    details: bytes | None = None
    outcome: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Something that was removed on purpose, as the store tells of it; the entry must say the same."""

    entry: int
    act: str
    call_id: str | None = None
    principal: str | None = None
    before_unix_ms: int | None = None
    first: int = 0
    count: int = 0


class Removals:
    """Whether any of many deletions covers a claim: each night's retention leaves one, for ever, and most calls are
    covered by some, so that they are not gone through for each.

    A deletion covers a call that had ended before it, by the order of entries and not only by a clock, which may have
    gone back since; and a removed call's id may be another's now."""

    def __init__(self, deletions: Sequence[Deletion]) -> None:
        self._of_call: dict[str, int] = {}
        told: dict[str | None, list[tuple[int, int]]] = {}
        for one in sorted(deletions, key=lambda one: one.entry, reverse=True):
            if one.call_id is not None:
                self._of_call.setdefault(one.call_id, one.entry)
            elif one.before_unix_ms is not None:
                since = told.setdefault(one.principal, [])
                since.append((one.entry, max(one.before_unix_ms, since[-1][1] if since else one.before_unix_ms)))
        self._before = {whose: tuple(zip(*reversed(since), strict=True)) for whose, since in told.items()}
        """Of each principal, None for all: entries in order, and with each the latest time of it and those after it."""

    def cover(self, claim: Claim) -> bool:
        if not claim.ended:
            return False
        if self._of_call.get(claim.call_id, -1) >= claim.last:
            return True
        whose = claim.principal if isinstance(claim.principal, str) else None
        return any(self._is_before(name, claim) for name in {None, whose})

    def _is_before(self, whose: str | None, claim: Claim) -> bool:
        entries, times = self._before.get(whose, ((), ()))
        at = bisect_left(entries, claim.last)
        return at < len(times) and claim.at_unix_ms < times[at]


class Claim(NamedTuple):
    """What the entries say is kept of one call."""

    after: int
    """How many entries had been read when it was made."""
    call_id: str
    row: Sequence[Json]
    first: int
    """The entry that commits to the details."""
    details: Json
    """The commitment, or None."""
    last: int
    """The entry that commits to the outcome; `first` itself where the call is still open."""
    outcome: Json
    ended: bool
    at_unix_ms: int
    principal: Json


def claim_of(after: int, view: EntryView, intent: EntryView | None) -> Claim:
    """`view` is the result, or the intent of a call that is still open (then there is no other)."""
    first = intent or view
    ended = view.kind == RESULT
    return Claim(
        after,
        str(view.call_id),
        _row(view, first),
        first.index,
        _mac(first, "details"),
        view.index,
        _mac(view, "outcome") if ended else None,
        ended,
        view.at_unix_ms,
        view.predicate.get("principal"),
    )


def _mac(view: EntryView, name: str) -> Json:
    macs = view.predicate.get("commitments")
    return macs.get(name) if isinstance(macs, Mapping) else None


def _row(view: EntryView, first: EntryView) -> tuple[Json, ...]:
    """What the entries say the call's row holds."""
    said, ended = first.predicate, view.predicate
    run_id, tool, principal = said.get("run_id"), said.get("tool"), said.get("principal")
    begun: tuple[Json, ...] = (None, None, None, None)
    if first.kind == INTENT:
        owner = said.get("owner")
        named = owner if isinstance(owner, Mapping) else {}
        begun = (first.index, named.get("boot_id"), named.get("pid"), named.get("start_ticks"))
    begun = (*begun, first.at_unix_ms)
    if view.kind == INTENT:
        return (run_id, tool, principal, *begun, "open", None, None, None)
    told = (ended.get("status"), ended.get("reason"), view.index, view.at_unix_ms)
    return (run_id, tool, principal, *begun, *told)


Artifact = tuple[Json, Json, Json, Json]
"""As its row has it: of which run, and its digest, size and name."""
_HAS_ARTIFACTS = b'"artifacts":[{'


class KeptCheck(Protocol):
    """Takes claims in the order of the tree, here or elsewhere, and tells at the end what it found."""

    def check(self, claim: Claim) -> None: ...
    def findings(self) -> Sequence[Located]: ...


@dataclass(slots=True, kw_only=True)
class KeptAudit:
    kept: Callable[[str], Kept | None]
    salts: Callable[[int], Mapping[str, bytes]]
    """What opens the commitments of an entry; asked for nearly in the order of the tree."""
    artifact: Callable[[str], Artifact | None]
    """None for one that is gone: they have a time of their own."""
    deletions: Sequence[Deletion] = ()

    _found: list[Located] = field(init=False, default_factory=list)
    _removals: Removals = field(init=False)

    def __post_init__(self) -> None:
        self._removals = Removals(self.deletions)

    def findings(self) -> Sequence[Located]:
        return self._found

    def check(self, claim: Claim) -> None:
        salts = self.salts(claim.first)
        kept = self.kept(claim.call_id)
        if kept is None:
            self._find(claim, claim.last, f"The row of call {claim.call_id}, entry {claim.last}, is missing.")
            return
        if kept.row != tuple(claim.row):
            self._differs(kept.row, claim)
        self._check_value(claim, "details", kept.details, claim.details, at=claim.first, salts=salts)
        if claim.ended:
            opening = salts if claim.last == claim.first else self.salts(claim.last)
            self._check_value(claim, "outcome", kept.outcome, claim.outcome, at=claim.last, salts=opening)
            if kept.outcome is not None and _HAS_ARTIFACTS in kept.outcome:
                self._check_artifacts(claim, kept.outcome)

    def _check_artifacts(self, claim: Claim, outcome: bytes) -> None:
        for artifact_id, *said in _artifacts(outcome):
            stored = self.artifact(artifact_id)
            if stored is not None and stored != (claim.row[0], *said):
                detail = f"The row of artifact {artifact_id[:40]} differs from the outcome of entry {claim.last}."
                self._find(claim, claim.last, detail)

    def _find(self, claim: Claim, index: int, detail: str) -> None:
        if len(self._found) <= MAX_FINDINGS:
            self._found.append((claim.after, Finding("KEPT", index, detail)))

    def _differs(self, row: tuple[Json, ...], claim: Claim) -> None:
        wrong = [name for name, had, wanted in zip(ROW, row, claim.row, strict=True) if had != wanted]
        for place, names in ((claim.first, ROW[:_FIRST]), (claim.last, ROW[_FIRST:])):
            if listed := ", ".join(name for name in wrong if name in names):
                self._find(claim, place, f"The row of call {claim.call_id} differs from entry {place}: {listed}.")

    def _check_value(
        self, claim: Claim, name: str, value: bytes | None, mac: Json, *, at: int, salts: Mapping[str, bytes]
    ) -> None:
        salt = salts.get(name, b"")
        if value is None:
            if mac is not None and not self._removals.cover(claim):
                self._find(claim, at, f"The kept {name} of entry {at} is gone, and no entry says why.")
        elif mac is None and not salt:
            return
        elif not salt:
            self._find(claim, at, f"The kept {name} of entry {at} cannot be proven: its opening is gone.")
        elif len(salt) != SALT_BYTES or mac_of(name, value, salt) != mac:
            self._find(claim, at, f"The kept {name} of entry {at} is not what the entry commits to.")


def _artifacts(outcome: bytes) -> Iterator[tuple[str, Json, Json, Json]]:
    """Those that a kept outcome names; that it is what was signed is checked beside."""
    try:
        value = orjson.loads(outcome)
    except orjson.JSONDecodeError:
        return
    listed = value.get("artifacts") if isinstance(value, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("artifact_id"), str):
            yield one["artifact_id"], one.get("sha256"), one.get("size_bytes"), one.get("name")
