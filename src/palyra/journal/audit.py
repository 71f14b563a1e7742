"""The audit of a journal: entries, tree, signed heads and calls, streamed once, every finding naming its entry.

Found: an entry that was edited, deleted, inserted, moved or copied; a leaf hash, a checkpoint or the head that was
changed; a tail without a signature; gaps in a run; a result without its intent, an intent without a result whose owner
is gone, a call id used twice; kept records that are not those committed to; edited budgets and approvals (standing).

Not found without outside evidence: a tail cut off together with its checkpoints, or an old copy put back. Whoever
holds a receipt or an earlier checkpoint passes it as `known`: then a shorter or different history is found too.
Memory grows with the number of calls (one id each), not with the bytes. Not here: reading rows (journal/store).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from palyra.canon import Json
from palyra.errors import TrustError
from palyra.journal.chain import INTENT, RESULT, EntryView, commit_value, parse_entry
from palyra.journal.checkpoint import open_checkpoint, parse_checkpoint
from palyra.journal.merkle import HASH_BYTES, Frontier, leaf_hash
from palyra.journal.standing import ApprovalRow, RunRow, Standing
from palyra.model.record import Checkpoint, Entry, Owner
from palyra.signing import NoteVerifier

MAX_FINDINGS = 1000
SAME = ("run_id", "tool", "principal", "decision", "executor")
"""What a result must say as its intent said it."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    index: int | None
    """The entry it is about, where it is about one."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head as the store keeps it, to append to."""

    size: int
    frontier: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is stored beside a call's entry: its row, and the values the entry commits to."""

    row: Mapping[str, Json] | None
    values: tuple[tuple[str, bytes, bytes], ...] = ()
    """(field, salt, value)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    findings: tuple[Finding, ...]
    entries: int
    checkpoints: int
    open_calls: int
    anchored: int
    """Entries that known checkpoints vouch for; what comes after rests on this installation's word alone."""

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
    kept: Callable[[EntryView], Kept | None] | None = None

    _findings: list[Finding] = field(init=False, default_factory=list)
    _frontier: Frontier = field(init=False, default_factory=Frontier)
    _next: int = field(init=False, default=0)
    _tree_holds: bool = field(init=False, default=True)
    _signed: int = field(init=False, default=0)
    """Entries that checkpoints were found to cover."""
    _newest: Checkpoint | None = field(init=False, default=None)
    _checkpoints: int = field(init=False, default=0)
    _wanted: dict[int, list[bytes]] = field(init=False, default_factory=dict)
    _anchored: int = field(init=False, default=0)
    _sequences: dict[str, int] = field(init=False, default_factory=dict)
    _ids: set[str] = field(init=False, default_factory=set)
    _open: dict[str, EntryView] = field(init=False, default_factory=dict)
    _edited: set[int] = field(init=False, default_factory=set)
    _standing: Standing = field(init=False, default_factory=Standing)
    _rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        for note in self.known:
            try:
                checkpoint = open_checkpoint(note, self.verifier)
            except TrustError as error:
                self._find("KNOWN", None, f"A known checkpoint does not hold: {error}")
            else:
                self._wanted.setdefault(checkpoint.size, []).append(checkpoint.root)

    def _find(self, code: str, index: int | None, detail: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(code, index, detail))
        elif len(self._findings) == MAX_FINDINGS:
            self._findings.append(Finding("MORE", None, f"There is more; only {MAX_FINDINGS} findings are listed."))

    # ── entries and the tree ──

    def schema(self, strangers: Iterable[str]) -> None:
        """Triggers and views in the database: Palyra makes none, and they could change what is written or read."""
        for name in strangers:
            self._find("SCHEMA", None, f"The database holds {name}, which Palyra did not make.")

    def entry(self, entry: Entry) -> None:
        if entry.index < 0:
            self._find("ORDER", entry.index, f"Entry {entry.index} stands before the first one: it was put there.")
            return
        if entry.index != self._next:
            self._misplaced(entry.index)
        self._next = entry.index + 1
        if leaf_hash(entry.body) != entry.leaf_hash:
            self._edited.add(entry.index)
            self._find("EDITED", entry.index, f"Entry {entry.index} does not have its leaf hash: it was changed.")
        # The tree is built of the stored hashes, so that one edited body is one finding and not a broken tree.
        if len(entry.leaf_hash) == HASH_BYTES:
            self._frontier.append(entry.leaf_hash)
        else:
            self._tree_holds = False
        try:
            view = parse_entry(entry.body)
        except ValueError as error:
            self._find("FORM", entry.index, f"Entry {entry.index} cannot be read: {error}.")
        else:
            self._read(entry.index, view)
        if self._next in self._wanted:
            self._compare_known(self._next)

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
            if self.every_signature:
                open_checkpoint(note, self.verifier)
        except TrustError as error:
            self._find("CHECKPOINT", last, f"The checkpoint at entry {last} does not hold: {error}")
            return
        if checkpoint.size != size or checkpoint.origin != self.verifier.name:
            self._find("CHECKPOINT", last, f"The checkpoint at entry {last} is another one than was signed there.")
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

    # ── what entries say ──

    def _read(self, index: int, view: EntryView) -> None:
        if view.index != index:
            self._find("MOVED", index, f"Entry {index} says it is entry {view.index}: it was moved or copied.")
        if view.run_id is not None:
            expected = self._sequences.get(view.run_id, 0)
            if view.sequence != expected:
                self._find(
                    "SEQUENCE", index, f"Entry {index} is number {view.sequence} of its run, {expected} was expected."
                )
            self._sequences[view.run_id] = (view.sequence or 0) + 1
        for contradiction in self._standing.read(view):
            self._find("STANDING", index, contradiction)
        if view.kind in (INTENT, RESULT):
            intent = self._read_call(index, view, str(view.call_id))
            if self.kept is not None:
                self._check_kept(index, view, self.kept(view), intent)

    def _read_call(self, index: int, view: EntryView, call_id: str) -> int | None:
        """The index of the call's intent, where it has one."""
        opened = view.predicate.get("opened") is True
        if view.kind == RESULT and opened:
            return self._close(index, view, call_id)
        if view.kind == RESULT and not has_row(view):
            return None  # bytes that never became a call hold no id
        if call_id in self._ids:
            self._find("REPLAYED", index, f"Entry {index} uses the id of call {call_id} a second time.")
        self._ids.add(call_id)
        if view.kind != INTENT:
            return None
        self._open[call_id] = view
        return index

    def _close(self, index: int, view: EntryView, call_id: str) -> int | None:
        intent = self._open.pop(call_id, None)
        if intent is None:
            self._find("UNASKED", index, f"Entry {index} is the result of call {call_id}, which has no open intent.")
            return None
        wrong = [name for name in SAME if not _agree(name, intent.predicate.get(name), view.predicate.get(name))]
        if wrong and not self._edited & {intent.index, index}:  # an edit is named already
            names = ", ".join(wrong)
            self._find("CONTRADICTS", index, f"Entry {index} contradicts its intent, entry {intent.index}: {names}.")
        return intent.index

    def _check_kept(self, index: int, view: EntryView, kept: Kept | None, intent: int | None) -> None:
        macs = view.predicate.get("commitments")
        for name, salt, value in kept.values if kept is not None else ():
            if not salt:
                self._find("KEPT", index, f"The kept {name} of entry {index} cannot be proven: its opening is gone.")
            elif not isinstance(macs, Mapping) or _mac(name, value, salt) != macs.get(name):
                self._find("KEPT", index, f"The kept {name} of entry {index} is not what the entry commits to.")
        if not has_row(view):
            return
        if kept is None or kept.row is None:
            self._find("KEPT", index, f"The row of call {view.call_id}, entry {index}, is missing.")
            return
        said = dict(view.predicate) | {"result_index": index, "intent_index": intent}
        wrong = [name for name, value in kept.row.items() if said.get(name) != value]
        if wrong:
            self._find("KEPT", index, f"The row of call {view.call_id} differs from entry {index}: {', '.join(wrong)}.")
        self._rows += view.predicate.get("opened") is not True

    # ── the end ──

    def finish(
        self,
        head: Head,
        *,
        rows: int | None = None,
        runs: Iterable[RunRow] | None = None,
        approvals: Iterable[ApprovalRow] | None = None,
    ) -> Report:
        """`rows` is how many calls the store keeps; more than the entries tell of is a finding."""
        self._check_end(head)
        for detail in self._standing.check_runs(runs) if runs is not None else ():
            self._find("KEPT", None, detail)
        for detail in self._standing.check_approvals(approvals) if approvals is not None else ():
            self._find("KEPT", None, detail)
        if self.kept is not None and rows is not None and rows > self._rows:
            self._find("KEPT", None, f"{rows - self._rows} kept calls have no entry.")
        for size in sorted(self._wanted):
            if size > self._next:
                self._find(
                    "TRUNCATED",
                    self._next,
                    f"A known checkpoint signs {size} entries, and there are {self._next}: entries were removed.",
                )
        for call_id, view in self._open.items():
            if not self._lives(view.predicate.get("owner")):
                at = view.index
                self._find("DANGLING", at, f"Entry {at}: call {call_id} was opened and never closed.")
        return self._report()

    def break_off(self, detail: str) -> Report:
        """What was found until the rows could not be read any further."""
        self._find("UNREADABLE", self._next, detail)
        return self._report()

    def _report(self) -> Report:
        return Report(
            findings=tuple(self._findings),
            entries=self._next,
            checkpoints=self._checkpoints,
            open_calls=len(self._open),
            anchored=self._anchored,
        )

    def _check_end(self, head: Head) -> None:
        if self._newest is not None and not self.every_signature:
            try:
                open_checkpoint(self._newest.note, self.verifier)
            except TrustError as error:
                self._find("CHECKPOINT", self._newest.size - 1, f"The newest checkpoint does not hold: {error}")
        if self._tree_holds and self._signed < self._next:
            self._find("UNSIGNED", self._signed, f"From entry {self._signed} on there is no signed checkpoint.")
        if head.size != self._next or (self._tree_holds and head.frontier != self._frontier.pack()):
            self._find("HEAD", None, f"The head says {head.size} entries and does not fit the {self._next} there are.")

    def _lives(self, owner: object) -> bool:
        if not isinstance(owner, Mapping):
            return False
        boot, pid, start = owner.get("boot_id"), owner.get("pid"), owner.get("start_ticks")
        if not (isinstance(boot, str) and isinstance(pid, int) and isinstance(start, int)):
            return False
        return self.is_alive(Owner(boot, pid, start))


def run_audit(
    audit: Audit,
    entries: Iterable[Entry],
    checkpoints: Iterable[tuple[int, str]],
    *,
    head: Head,
    rows: int | None = None,
    runs: Iterable[RunRow] | None = None,
    approvals: Iterable[ApprovalRow] | None = None,
) -> Report:
    """Feed all entries and all (size, note), both in order, and finish."""
    rest = iter(checkpoints)
    waiting = next(rest, None)
    for entry in entries:
        while waiting is not None and waiting[0] <= entry.index:
            audit.checkpoint(*waiting)
            waiting = next(rest, None)
        audit.entry(entry)
    while waiting is not None:
        audit.checkpoint(*waiting)
        waiting = next(rest, None)
    return audit.finish(head, rows=rows, runs=runs, approvals=approvals)


def has_row(view: EntryView) -> bool:
    """An intent and its result have a row in `calls`; so has a refusal, unless its bytes never became a call."""
    return view.kind == INTENT or (view.kind == RESULT and view.predicate.get("kept") is not False)


def _mac(name: str, value: bytes, salt: bytes) -> str | None:
    try:
        return commit_value(name, value, salt).mac
    except ValueError:
        return None


def _agree(name: str, intent: Json, result: Json) -> bool:
    """`policy` executes nothing: so says the result of a call that was cancelled before its launch."""
    return intent == result or (name == "executor" and result == "policy") or _is_cut(intent) or _is_cut(result)


def _is_cut(value: Json) -> bool:
    """An entry that was too long says how much it left out; it cannot be compared."""
    if isinstance(value, Mapping):
        return "omitted_bytes" in value or "omitted" in value or any(map(_is_cut, value.values()))
    if isinstance(value, str):
        return "… (" in value
    return isinstance(value, list) and any(map(_is_cut, value))
