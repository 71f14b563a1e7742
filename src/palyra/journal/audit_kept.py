"""What is kept beside the entries of a call, held against what those entries say.

A claim is all that two entries tell of one call's row and kept values. Claims are plain JSON values in the order of the
tree, so that they may be checked beside the audit, in another process, with the same findings (state/beside).

Found: a row that is missing or was changed; a kept value that is not what its entry commits to, that cannot be opened,
or that is gone though no entry tells who removed it; an artifact that was given to another run than the kept outcome
names it in, or another file. Not found: an artifact that no outcome names, as a crash leaves one. Not here: which calls
there are (journal/audit_calls).
"""

from __future__ import annotations

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

    def covers(self, claim: Claim) -> bool:
        """Whether what was kept of this call was removed by it: then it had ended before, by the order of entries and
        not only by a clock, which may have gone back since; and a removed call's id may be another's now."""
        if not claim.ended or claim.last > self.entry:
            return False
        if self.call_id is not None:
            return claim.call_id == self.call_id
        before = self.before_unix_ms
        return before is not None and claim.at_unix_ms < before and self.principal in (None, claim.principal)


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
            if mac is not None and not any(deletion.covers(claim) for deletion in self.deletions):
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
