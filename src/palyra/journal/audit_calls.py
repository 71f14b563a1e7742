"""What entries say of calls, held against each other and against what is kept beside them.

Found: gaps in a run; a result without its intent or one that contradicts it; an intent without a result whose owner is
gone; a call id used twice; budgets that are not what the entries count. What is kept of each call is claimed here and
checked elsewhere (journal/audit_kept).

Where retention removed old entries, what can no longer be compared is passed over: a run's first number, an intent
whose body is gone. Not here: the tree and its signatures (journal/audit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from operator import add
from typing import Protocol

from palyra.canon import Json
from palyra.journal.acts import ActKind
from palyra.journal.audit_kept import Deletion, KeptCheck, claim_of
from palyra.journal.chain import ACT, INTENT, RESULT
from palyra.journal.entry import EntryView
from palyra.model.record import Owner
from palyra.values import dataclass

SAME = ("run_id", "tool", "principal", "decision", "executor")
"""What a result must say as its intent said it."""
ENTRIES_PRUNED = ActKind.ENTRIES_PRUNED.value
DELETING = frozenset({ActKind.RECORDS_DELETED.value, ActKind.OPENING_DELETED.value, ENTRIES_PRUNED})
COUNTED = ("principal", "calls_used", "attempts_used", "next_sequence")
SPENT = ("wall_us", "cpu_us", "output_bytes", "egress_bytes", "fuel")
SPENT_NAMES = tuple(f"{name}_used" for name in SPENT)
_WHOLE = {int}
EXTENDED = ActKind.RUN_EXTENDED.value
ENDED = ActKind.RUN_ENDED.value


class Find(Protocol):
    def __call__(self, code: str, index: int | None, detail: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as its row counts it; the entries must count the same."""

    run_id: str
    principal: str
    calls_used: int
    attempts_used: int
    next_sequence: int
    spent: tuple[int, ...] | None = (0,) * len(SPENT)
    """In the order of SPENT; None where an entry does not say."""
    limits: Mapping[str, Json] = field(default_factory=dict)
    terms_sha256: str | None = None
    """Of the terms that lie beside it, where it was made by name for the same principal."""
    ended_unix_ms: int | None = None
    """As those say."""
    began_unix_ms: int | None = None
    """The day for which it counts in what its principal's runs share."""
    commitment: str | None = None
    """To its workspace and that time, by its salt."""


def deletion_of(view: EntryView) -> Deletion | None:
    """What an act says was removed: kept records, or the bodies of old entries."""
    act, details = view.act, view.predicate.get("details")
    if view.kind != ACT or act not in DELETING or not isinstance(details, Mapping):
        return None
    call_id, principal, before = (details.get(name) for name in ("call_id", "principal", "before_unix_ms"))
    first, count = (details.get(name, 0) for name in ("first", "count"))
    return Deletion(
        entry=view.index,
        act=act,
        call_id=call_id if isinstance(call_id, str) else None,
        principal=principal if isinstance(principal, str) else None,
        before_unix_ms=before if isinstance(before, int) else None,
        first=first if isinstance(first, int) else 0,
        count=count if isinstance(count, int) else 0,
    )


@dataclass(slots=True)
class _Counted:
    principal: str = ""
    calls: int = 0
    attempts: int = 0
    entries: int = 0
    spent: tuple[int, ...] | None = (0,) * len(SPENT)
    limits: Mapping[str, Json] = field(default_factory=dict)
    terms: Json = None
    ended_unix_ms: int | None = None
    began: Json = None
    commitment: Json = None

    def row(self, run_id: str) -> RunRow:
        return RunRow(run_id, self.principal, self.calls, self.attempts, self.entries, self.spent, self.limits)


@dataclass(slots=True)
class _Opened:
    view: EntryView
    edited: bool


@dataclass(slots=True, kw_only=True)
class CallsAudit:
    find: Find
    is_alive: Callable[[Owner], bool]
    kept: KeptCheck | None = None
    deletions: Sequence[Deletion] = ()
    begins_at: int = 0
    """Entries of calls below this place may be gone."""

    _sequences: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)
    """The next number of a run, and the entry that had the last."""
    _ids: set[str] = field(init=False, default_factory=set)
    _open: dict[str, _Opened] = field(init=False, default_factory=dict)
    _runs: dict[str, _Counted] = field(init=False, default_factory=dict)
    _partly: set[str] = field(init=False, default_factory=set)
    """Runs of which entries are gone."""
    _rows: int = field(init=False, default=0)
    _read: int = field(init=False, default=0)
    _deleted: set[Deletion] = field(init=False, default_factory=set)

    @property
    def open_calls(self) -> int:
        return len(self._open)

    def read(self, index: int, view: EntryView, *, edited: bool) -> None:
        if view.index != index:
            self.find("MOVED", index, f"Entry {index} says it is entry {view.index}: it was moved or copied.")
        self._read = index + 1
        run_id = view.predicate.get("run_id")
        if isinstance(run_id, str):
            self._number(index, view, run_id)
        if view.kind == ACT:
            if (deletion := deletion_of(view)) is not None:
                self._deleted.add(deletion)
            return
        call_id = str(view.call_id)
        if view.kind == INTENT:
            self._claim(index, call_id)
            self._open[call_id] = _Opened(view, edited)
        elif view.predicate.get("opened") is True:
            self._close(index, view, call_id, edited=edited)
        elif has_row(view):  # bytes that never became a call hold no id
            self._claim(index, call_id)
            self._claim_kept(view, None)

    # ── runs ──

    def _number(self, index: int, view: EntryView, run_id: str) -> None:
        sequence, (expected, before) = view.sequence, self._sequences.get(run_id, (0, -1))
        if sequence != expected:
            # What is missing may lie where retention removed it, and nowhere else.
            if sequence is not None and sequence > expected and 0 < self.begins_at > before:
                self._partly.add(run_id)
            else:
                self.find("SEQUENCE", index, f"Entry {index} is number {sequence} of its run, {expected} was expected.")
        self._sequences[run_id] = ((sequence or 0) + 1, index)
        self._count(run_id, view)

    def _count(self, run_id: str, view: EntryView) -> None:
        """A run is its first caller's; what others send under its id is recorded and costs it nothing."""
        run = self._runs.get(run_id)
        if run is None:
            began, commitment = (view.predicate.get(name) for name in ("run_began_unix_ms", "run_commitment"))
            run = self._runs[run_id] = _Counted(began=began, commitment=commitment)
        run.entries += 1
        run.limits = self._limits(run_id, run.limits, view)
        if view.kind != INTENT:
            run.spent = _with_spent(run.spent, view)
        if view.kind == ACT:
            run.ended_unix_ms = view.at_unix_ms if view.act == ENDED else run.ended_unix_ms
            return
        principal = view.predicate.get("principal")
        if not run.principal:
            run.principal = str(principal)
        if view.kind == INTENT:
            run.calls += 1
            if "terms_sha256" in view.predicate:
                self._terms(run_id, run, view)
        elif view.predicate.get("opened") is not True:
            run.attempts += principal == run.principal

    def _limits(self, run_id: str, before: Mapping[str, Json], view: EntryView) -> Mapping[str, Json]:
        """A run's limits change by an act that says so, and by nothing else."""
        said = view.predicate.get("budget")
        if isinstance(said, Mapping):
            if before and said != before:
                detail = (
                    f"Entry {view.index} gives other limits for run {run_id} than before, and nobody extended them."
                )
                self.find("STANDING", view.index, detail)
            return said
        if view.kind == ACT and view.act == EXTENDED:
            return _mapping(_mapping(view.predicate.get("details")).get("budget"))
        return before

    def _terms(self, run_id: str, run: _Counted, view: EntryView) -> None:
        """What a run was made with never changes. An operator's own call in it, from another door, tells of none."""
        said = view.predicate["terms_sha256"]
        if run.terms is not None and run.terms != said:
            self.find("STANDING", view.index, f"Entry {view.index} gives other terms for run {run_id} than before.")
        run.terms = said

    def go_on(self, rows: Iterable[RunRow], index: int) -> None:
        """From rows that an act tells of, when it removed entries of theirs."""
        for row in rows:
            before = self._runs.get(row.run_id, _Counted())
            if before.limits and before.limits != row.limits:
                self.find("STANDING", index, f"Entry {index} tells other limits of run {row.run_id} than before.")
            if None not in (before.terms, row.terms_sha256) and before.terms != row.terms_sha256:
                self.find("STANDING", index, f"Entry {index} tells other terms of run {row.run_id} than before.")
            self._runs[row.run_id] = _Counted(
                principal=row.principal,
                calls=row.calls_used,
                attempts=row.attempts_used,
                entries=row.next_sequence,
                spent=row.spent,
                limits=row.limits,
                terms=before.terms if row.terms_sha256 is None else row.terms_sha256,
                ended_unix_ms=before.ended_unix_ms,
                began=row.began_unix_ms,
                commitment=row.commitment or before.commitment,
            )
            self._sequences[row.run_id] = (row.next_sequence, index)
            self._partly.discard(row.run_id)

    # ── calls ──

    def _claim(self, index: int, call_id: str) -> None:
        if call_id in self._ids:
            self.find("REPLAYED", index, f"Entry {index} uses the id of call {call_id} a second time.")
        self._ids.add(call_id)

    def _close(self, index: int, view: EntryView, call_id: str, *, edited: bool) -> None:
        opened = self._open.pop(call_id, None)
        if opened is None:
            self.find("UNASKED", index, f"Entry {index} is the result of call {call_id}, which has no open intent.")
            return
        intent = opened.view
        said, ended = intent.predicate.get, view.predicate.get
        wrong = [name for name in SAME if said(name) != ended(name) and not _agree(name, said(name), ended(name))]
        if wrong and not (edited or opened.edited):  # an edit is named already
            names = ", ".join(wrong)
            self.find("CONTRADICTS", index, f"Entry {index} contradicts its intent, entry {intent.index}: {names}.")
        self._claim_kept(view, intent)

    def _claim_kept(self, view: EntryView, intent: EntryView | None) -> None:
        """`view` is the result, or the intent of a call that is still open (then there is no other)."""
        self._rows += 1
        if self.kept is not None:
            self.kept.check(claim_of(self._read, view, intent))

    # ── the end ──

    def finish(self, *, rows: int | None, runs: Iterable[RunRow] | None, pruned: int = 0) -> None:
        """`pruned`: entries of which retention left the hash alone, and did not tell whose they were."""
        for call_id, opened in self._open.items():
            self._claim_kept(opened.view, None)
            if not self._lives(opened.view.predicate.get("owner")):
                at = opened.view.index
                self.find("DANGLING", at, f"Entry {at}: call {call_id} was opened and never closed.")
        if runs is not None:
            self._check_runs(runs, pruned)
        if self.kept is not None and rows is not None and rows > self._rows:
            self.find("KEPT", None, f"{rows - self._rows} stored calls have no entry.")
        for deletion in self.deletions:
            if deletion not in self._deleted:
                self.find("KEPT", deletion.entry, "Kept records were removed, and the journal does not say so.")

    def _check_runs(self, runs: Iterable[RunRow], pruned: int) -> None:
        """A budget is a number in a row: it holds only if the entries count to the same. Where entries are gone, all
        rows together count no more of them than that: one that somebody adds, to begin a run with limits of theirs,
        says it had entries which nobody removed."""
        gone = 0
        for row in runs:
            found = self._runs.pop(row.run_id, None)
            if found is None:
                if not pruned or row.next_sequence < 1:
                    self.find("KEPT", None, f"The row of run {row.run_id} has no entry.")
                gone += max(row.next_sequence, 0)
                continue
            counted = found.row(row.run_id)
            counted = counted if counted.principal else replace(counted, principal=row.principal)  # acts name nobody
            if row.run_id in self._partly:
                gone += max(row.next_sequence - found.entries, 0)
                counted = _at_least(row, counted, next_sequence=self._next_number(row))
            names = [name for name in COUNTED if getattr(row, name) != getattr(counted, name)]
            if counted.spent is not None and row.spent is not None:
                both = zip(SPENT_NAMES, row.spent, counted.spent, strict=True)
                names += [name for name, stored, said in both if stored != said]
            names += [name for name, limit in counted.limits.items() if row.limits.get(name) != limit]
            names += ["terms"] if found.terms not in (None, row.terms_sha256) else []
            names += _begun_otherwise(found, row)
            names += ["ended_unix_ms"] if found.ended_unix_ms not in (None, row.ended_unix_ms) else []
            if names:
                self.find("KEPT", None, f"The row of run {row.run_id} differs from its entries: {', '.join(names)}.")
        for run_id in self._runs:
            self.find("KEPT", None, f"The row of run {run_id} is missing.")
        if gone > pruned and self.begins_at:
            detail = f"Rows of runs count {gone} entries that are gone, and retention removed {pruned}."
            self.find("KEPT", None, detail)

    def _next_number(self, row: RunRow) -> int:
        """Of a run of which entries are gone. Those may have been its last: an act before them stays, and numbers go on
        behind what is gone."""
        following, last = self._sequences[row.run_id]
        return max(following, row.next_sequence) if last < self.begins_at else following

    def _lives(self, owner: object) -> bool:
        if not isinstance(owner, Mapping):
            return False
        boot, pid, start = owner.get("boot_id"), owner.get("pid"), owner.get("start_ticks")
        if not (isinstance(boot, str) and isinstance(pid, int) and isinstance(start, int)):
            return False
        return self.is_alive(Owner(boot, pid, start))


def _begun_otherwise(said: _Counted, row: RunRow) -> list[str]:
    """Of where a run works and when it was made: a commitment does not tell which of both was changed."""
    if said.began not in (None, row.began_unix_ms):
        return ["created_unix_ms"]
    if said.commitment in (None, row.commitment):
        return []
    return ["workspace or created_unix_ms" if said.began is None else "workspace"]


def _at_least(row: RunRow, counted: RunRow, *, next_sequence: int) -> RunRow:
    """A run of which entries are gone has used what those say that remain, and its limits are theirs; whose it is, and
    its refusals, the first of them may have told."""
    spent = None
    if row.spent is not None and counted.spent is not None:
        spent = tuple(map(max, row.spent, counted.spent))
    used = max(row.calls_used, counted.calls_used)
    return replace(row, next_sequence=next_sequence, calls_used=used, spent=spent, limits=counted.limits)


def _with_spent(before: tuple[int, ...] | None, view: EntryView) -> tuple[int, ...] | None:
    """Results of calls that ran say what counts as used; so do ends of what outlived its call."""
    said = view.predicate if view.kind == RESULT else _mapping(view.predicate.get("details"))
    if "spent" not in said:
        return None if view.kind == RESULT and view.predicate.get("opened") is True else before
    amounts = _mapping(said["spent"])
    added: list[Json] = [amounts.get(name) for name in SPENT]
    if before is None or set(map(type, added)) != _WHOLE:
        return None
    return tuple(map(add, before, added))


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def has_row(view: EntryView) -> bool:
    """An intent and its result have a row in `calls`; so has a refusal, unless its bytes never became a call."""
    return view.kind == INTENT or (view.kind == RESULT and view.predicate.get("kept") is not False)


def _agree(name: str, intent: Json, result: Json) -> bool:
    """`policy` executes nothing: so says the result of a call that was cancelled before its launch. `builtin` is the
    engine itself: so says a fetch that brought nothing to read, or a module that nobody could compile."""
    nothing_ran = name == "executor" and result in ("policy", "builtin")
    return nothing_ran or _is_cut(intent) or _is_cut(result)


def _is_cut(value: Json) -> bool:
    """An entry that was too long says how much it left out; it cannot be compared."""
    if isinstance(value, Mapping):
        return "omitted_bytes" in value or "omitted" in value or any(map(_is_cut, value.values()))
    if isinstance(value, str):
        return "… (" in value
    return isinstance(value, list) and any(map(_is_cut, value))
