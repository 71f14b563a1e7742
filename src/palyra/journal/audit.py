"""The audit of a journal: entries, tree, signed heads and keys, streamed once, every finding naming its entry.

Found: an entry that was edited, deleted, inserted, moved or copied; a leaf hash, a checkpoint or the head that was
changed; a tail without a signature; a head signed by a key out of its time. What entries say of calls and approvals is
read beside (journal/audit_calls, journal/standing, journal/standings).

Not found without outside evidence: a tail cut off together with its checkpoints, or an old copy put back. Whoever
holds a receipt or an earlier checkpoint passes it as `known`: then a shorter or different history is found too.
Memory grows with the number of calls (one id each), not with the bytes. Not here: reading rows (journal/store).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from operator import itemgetter

from palyra.errors import TrustError
from palyra.journal.audit_calls import ENTRIES_PRUNED, CallsAudit, RunRow, deletion_of
from palyra.journal.audit_kept import MAX_FINDINGS, Deletion, Finding, Kept, KeptCheck, Located
from palyra.journal.audit_pruned import Pruned
from palyra.journal.chain import ACT
from palyra.journal.checkpoint import parse_checkpoint
from palyra.journal.entry import EntryView, parse_entry
from palyra.journal.held_standing import HeldRow, HeldStanding
from palyra.journal.keys import Handover, Keys, handover_of
from palyra.journal.merkle import HASH_BYTES, Frontier
from palyra.journal.pruned_runs import read_runs, read_uses
from palyra.journal.standing import ApprovalRow, Standing
from palyra.journal.standings import StandingRows, Standings
from palyra.model.record import Checkpoint, Owner
from palyra.signing import NoteVerifier
from palyra.values import dataclass

__all__ = ["Audit", "Finding", "Head", "Kept", "Report", "RunRow", "run_rows"]

_NEVER = 1 << 63
"""Past every index that a database holds, also one that somebody put there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head as the store keeps it, to append to."""

    size: int
    frontier: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    findings: tuple[Finding, ...]
    entries: int
    checkpoints: int
    open_calls: int
    anchored: int
    """Entries that known checkpoints vouch for; what comes after rests on this installation's word alone."""
    pruned: int = 0
    """Entries of which retention left the hash alone."""

    @property
    def sound(self) -> bool:
        return not self.findings


@dataclass(slots=True, kw_only=True)
class Audit:
    """Feed it every entry and checkpoint in order, then `finish`."""

    verifier: NoteVerifier
    is_alive: Callable[[Owner], bool]
    known: Iterable[str] = ()
    """Checkpoints from receipts, witnesses or earlier audits."""
    every_signature: bool = False
    handovers: Sequence[Handover] | None = ()
    """As the store tells of them; each must be an entry, and each such entry must be told of. None for an export:
    its checkpoint alone is opened, and what its entries say of earlier keys is only read."""
    kept: KeptCheck | None = None
    deletions: Sequence[Deletion] = ()
    begin: Frontier = field(default_factory=Frontier)
    kept_runs: Callable[[str], bytes | None] | None = None
    """What retention kept of runs whose entries it removed, by its digest; None for an export."""
    had: int = 0
    """Entries the store says it had: fewer means that what was acknowledged is gone."""

    _findings: list[Located] = field(init=False, default_factory=list)
    _calls: CallsAudit = field(init=False)
    _standing: Standing = field(init=False, default_factory=Standing)
    _held: HeldStanding = field(init=False, default_factory=HeldStanding)
    _standings: Standings = field(init=False, default_factory=Standings)
    _keys: Keys = field(init=False)
    _frontier: Frontier = field(init=False)
    _next: int = field(init=False)
    _tree_holds: bool = field(init=False, default=True)
    _signed: int = field(init=False)
    """Entries that checkpoints were found to cover."""
    _newest: Checkpoint | None = field(init=False, default=None)
    _checkpoints: int = field(init=False, default=0)
    _wanted: dict[int, list[bytes]] = field(init=False, default_factory=dict)
    _anchored: int = field(init=False, default=0)
    _handed: list[Handover] = field(init=False, default_factory=list)
    _handover_heads: set[int] = field(init=False, default_factory=set)
    """Sizes of the heads that are opened with both keys."""
    _pruned: Pruned = field(init=False)

    def __post_init__(self) -> None:
        self._frontier = self.begin.copy()
        self._next = self._signed = self.begin.size
        self._pruned = Pruned(self.deletions)
        try:
            self._keys = Keys(self.verifier, tuple(self.handovers or ()))
        except TrustError as error:
            self._keys = Keys(self.verifier)
            self._find("KEYS", None, str(error))
        self._calls = CallsAudit(
            find=self._find,
            is_alive=self.is_alive,
            kept=self.kept,
            deletions=self.deletions,
            begins_at=max(self._pruned.end, self.begin.size),
        )
        for note in self.known:
            if (
                len(self._findings) > MAX_FINDINGS
            ):  # who can append to a witness adds heads that nobody signed, by the million
                break
            try:
                checkpoint = self._keys.open(note)
            except TrustError as error:
                self._find("KNOWN", None, f"A known checkpoint is not valid: {error}")
            else:
                self.expect(checkpoint)

    def expect(self, checkpoint: Checkpoint) -> None:
        """A head from outside, whose signature was checked: the tree must come to it."""
        self._wanted.setdefault(checkpoint.size, []).append(checkpoint.root)
        if checkpoint.size == self._next > 0:  # an export begins there
            self._compare_known(checkpoint.size)

    def _find(self, code: str, index: int | None, detail: str) -> None:
        if len(self._findings) <= MAX_FINDINGS:
            self._findings.append((self._next, Finding(code, index, detail)))

    # ── entries and the tree ──

    def schema(self, strangers: Iterable[str]) -> None:
        """Triggers and views in the database: Palyra makes none, and they could change what is written or read."""
        for name in strangers:
            self._find("SCHEMA", None, f"The database contains {name}, which Palyra did not make.")

    def indexes(self, lying: Iterable[str]) -> None:
        """What the database's own check says of them."""
        for line in lying:
            self._find("SCHEMA", None, f"The database's indexes do not hold what its tables do: {line}.")

    def feed(self, index: int, leaf: bytes, body: bytes) -> None:
        if index != self._next:
            if index < 0:
                self._find("ORDER", index, f"Entry {index} comes before the first one: it was inserted.")
                return
            self._misplaced(index)
        self._next = index + 1
        if not body and self._pruned.take(index):
            if len(leaf) != HASH_BYTES:  # without it the tree cannot be made again, and every other edit would pass
                self._find("EDITED", index, f"Entry {index} has no leaf hash any more: it was changed.")
            self._append(leaf)
        else:
            self._read(index, leaf, body)
        if self._next in self._wanted:
            self._compare_known(self._next)

    def _read(self, index: int, leaf: bytes, body: bytes) -> None:
        whole = sha256(b"\x00" + body).digest() == leaf
        if not whole:
            self._find("EDITED", index, f"Entry {index} does not match its leaf hash: it was changed.")
        # The tree is built of the stored hashes, so that one edited body is one finding and not a broken tree.
        self._append(leaf)
        try:
            view = parse_entry(body)
        except ValueError as error:
            self._find("FORM", index, f"Entry {index} cannot be read: {error}.")
            return
        if view.kind == ACT:
            try:
                handed = handover_of(view)
            except TrustError as error:
                self._find("KEYS", index, str(error))
            else:
                self._handed += [handed] if handed is not None else []
            self._pruned.read(view)
            self._standings.read(view)
        self._calls.read(index, view, edited=not whole)
        if view.act == ENTRIES_PRUNED and self.kept_runs is not None:
            self._go_on(view)
        for contradiction in (*self._standing.read(view), *self._held.read(view)):
            self._find("STANDING", index, contradiction)

    def _go_on(self, view: EntryView) -> None:
        """With runs of which entries are gone; an act of an older version does not tell of them."""
        deletion, details = deletion_of(view), view.predicate.get("details")
        said = details if isinstance(details, Mapping) else {}
        sha256 = said.get("runs_sha256")
        if deletion is None or not isinstance(sha256, str) or self.kept_runs is None:
            return
        rows = read_runs(self.kept_runs(sha256), sha256)
        if rows is None:
            self._find("KEPT", view.index, f"What entry {view.index} tells of runs whose entries it removed is gone.")
            return
        self._pruned.tell(deletion.first, deletion.count)
        self._calls.go_on(rows, view.index)
        if "approvals_sha256" in said:
            self._go_on_using(deletion, view.index, said["approvals_sha256"])

    def _go_on_using(self, deletion: Deletion, index: int, sha256: object) -> None:
        uses = None
        if self.kept_runs is not None and isinstance(sha256, str):
            uses = read_uses(self.kept_runs(sha256), sha256)
        if uses is None:
            self._find("KEPT", index, f"What entry {index} tells of approvals whose uses it removed is gone.")
            return
        self._pruned.tell_uses(deletion.first, deletion.count)
        self._standing.go_on(uses)

    def _append(self, leaf: bytes) -> None:
        if len(leaf) == HASH_BYTES:
            self._frontier.append(leaf)
        else:
            self._tree_holds = False

    def _misplaced(self, index: int) -> None:
        self._tree_holds = False
        if index < self._next:
            self._find("ORDER", index, f"Entry {index} comes twice or out of order.")
        elif index == self._next + 1:
            self._find("MISSING", self._next, f"Entry {self._next} is missing.")
        else:
            self._find("MISSING", self._next, f"Entries {self._next} to {index - 1} are missing.")

    def _compare_known(self, size: int) -> None:
        if not self._tree_holds:
            return
        if any(root != self._frontier.root() for root in self._wanted[size]):
            self._find("FORK", size - 1, f"A known checkpoint signs another history of the first {size} entries.")
        else:
            self._anchored = max(self._anchored, size)

    def checkpoint(self, size: int, note: str) -> None:
        """In order: after the entry that made the tree this large."""
        self._checkpoints += 1
        last = size - 1
        try:
            checkpoint = parse_checkpoint(note)
            # A handover is always opened: there are few, and on each rests every key after it.
            if handed_over := len(self._keys.at(size)) > 1:
                self._handover_heads.add(size)
            if self.every_signature or handed_over:
                self._keys.open(note)
        except TrustError as error:
            self._find("CHECKPOINT", last, f"The checkpoint at entry {last} is not valid: {error}")
            return
        if checkpoint.size != size or checkpoint.origin != self.verifier.name:
            self._find("CHECKPOINT", last, f"The checkpoint at entry {last} is not the one that was signed there.")
            return
        self._newest = checkpoint
        if size > self._next:
            self._find(
                "TRUNCATED",
                self._next,
                f"A checkpoint signs {size} entries, and there are {self._next}: entries were removed.",
            )
        elif self._tree_holds and checkpoint.root != self._frontier.root():
            self._tree_holds = False
            what = f"Entry {last} is" if last == self._signed else f"Entries {self._signed} to {last} are"
            self._find("TREE", self._signed, f"{what} not what the checkpoint signs: one of them was changed.")
        else:
            self._signed = max(self._signed, size)

    # ── the end ──

    def finish(
        self,
        head: Head | None,
        *,
        rows: int | None = None,
        runs: Iterable[RunRow] | None = None,
        approvals: Iterable[ApprovalRow] | None = None,
        standing: StandingRows | None = None,
        held: Iterable[HeldRow] | None = None,
    ) -> Report:
        """`rows` is how many calls the store keeps; more than the entries tell of is a finding."""
        self._check_end(head)
        if self.handovers is not None and list(self._keys.handovers) != self._handed:
            self._find("KEYS", None, "The key changes in the journal are not those the installation records.")
        for handover in self._keys.handovers:
            if handover.index + 1 not in self._handover_heads:
                self._find(
                    "CHECKPOINT", handover.index, "The head that both keys signed is gone: nobody can follow them."
                )
        for first, detail in self._pruned.findings():
            self._find("MISSING", first, detail)
        self._calls.finish(rows=rows, runs=runs, pruned=self._pruned.untold)
        from_index = self._pruned.end
        if approvals is not None:
            uncounted = self._pruned.uncounted
            for detail in self._standing.check_approvals(approvals, from_index=from_index, uncounted=uncounted):
                self._find("KEPT", None, detail)
        if standing is not None:
            told = self._standings.check(standing, from_index=from_index, is_sound=lambda: not self._findings)
            for detail in told:
                self._find("KEPT", None, detail)
        for detail in self._held.check(held, from_index=from_index) if held is not None else ():
            self._find("KEPT", None, detail)
        if self.had > self._next:
            self._find("TRUNCATED", self._next, f"There were {self.had} entries once, and there are {self._next}.")
        for size in sorted(self._wanted):
            if size > self._next:
                self._find(
                    "TRUNCATED",
                    self._next,
                    f"A known checkpoint signs {size} entries, and there are {self._next}: entries were removed.",
                )
        return self._report()

    def break_off(self, detail: str) -> Report:
        """What was found until the rows could not be read any further."""
        self._find("UNREADABLE", self._next, detail)
        return self._report()

    def _report(self) -> Report:
        return Report(
            findings=self._told(),
            entries=self._next,
            checkpoints=self._checkpoints,
            open_calls=self._calls.open_calls,
            anchored=self._anchored,
            pruned=self._pruned.count,
        )

    def _told(self) -> tuple[Finding, ...]:
        """All of them in the order of the entries they were made at, whoever made them, and not too many."""
        located = sorted([*self._findings, *(self.kept.findings() if self.kept is not None else ())], key=itemgetter(0))
        told = [finding for _, finding in located[:MAX_FINDINGS]]
        if len(located) > MAX_FINDINGS:
            told.append(Finding("MORE", None, f"There is more; only {MAX_FINDINGS} findings are listed."))
        return tuple(told)

    def _check_end(self, head: Head | None) -> None:
        if self._newest is not None and not self.every_signature:
            try:
                self._keys.open(self._newest.note)
            except TrustError as error:
                self._find("CHECKPOINT", self._newest.size - 1, f"The newest checkpoint is not valid: {error}")
        if self._tree_holds and self._signed < self._next:
            self._find("UNSIGNED", self._signed, f"From entry {self._signed} on there is no signed checkpoint.")
        if head is None:
            return
        if head.size != self._next or (self._tree_holds and head.frontier != self._frontier.pack()):
            self._find(
                "HEAD", None, f"The head says {head.size} entries and does not match the {self._next} there are."
            )


def run_rows(
    audit: Audit,
    entries: Iterable[tuple[int, bytes, bytes]],
    checkpoints: Iterable[tuple[int, str]],
    *,
    head: Head | None,
    rows: int | None = None,
    runs: Iterable[RunRow] | None = None,
    approvals: Iterable[ApprovalRow] | None = None,
    standing: StandingRows | None = None,
    held: Iterable[HeldRow] | None = None,
) -> Report:
    """Feed all entries as (index, leaf hash, body), of which a million need no value each, and all checkpoints as
    (size, note), both in order, and finish."""
    rest = iter(checkpoints)
    waiting = next(rest, None)
    size = _NEVER if waiting is None else waiting[0]
    feed = audit.feed
    for index, leaf, body in entries:
        while size <= index:
            assert waiting is not None
            audit.checkpoint(*waiting)
            waiting = next(rest, None)
            size = _NEVER if waiting is None else waiting[0]
        feed(index, leaf, body)
    while waiting is not None:
        audit.checkpoint(*waiting)
        waiting = next(rest, None)
    return audit.finish(head, rows=rows, runs=runs, approvals=approvals, standing=standing, held=held)
