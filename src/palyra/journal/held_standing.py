"""What calls under way hold of budgets, held against their intents.

An amount that is held counts as used by everybody else. A row of it is unsigned: who takes one away, or puts a negative
one there, raises the budget of a run, and by it that of its principal's day. So an intent whose call holds something
says how much (`reserved`). It is held from there to the call's result, or to the end of the background process that a
completed call left; of an interrupted call, and of a process that was lost, all of it is spent.

Found: amounts that are gone, changed or given to another run; one that no call under way holds; an interrupted call
that counts as less. Intents of older versions say no amounts: of theirs a row may be missing. Not here: what a run has
used (journal/audit_calls).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.canon import Json
from palyra.journal.acts import ActKind
from palyra.journal.chain import ACT, INTENT
from palyra.journal.entry import EntryView
from palyra.model.budget import RESOURCES
from palyra.values import dataclass

_PROCESS_ACTS = (ActKind.PROCESS_STARTED, ActKind.PROCESS_ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    call_id: str
    run_id: str
    amounts: tuple[int, ...]
    """In the order of RESOURCES."""
    is_kept: bool
    """A row of a background process of the call says that it runs; older versions told of its end alone."""


class HeldStanding:
    def __init__(self) -> None:
        self._holding: dict[str, tuple[Json, tuple[Json, ...] | None]] = {}
        """By call: its run, and the amounts where its intent says them."""
        self._running: set[str] = set()
        """Calls whose background process has not ended."""

    def read(self, view: EntryView) -> Iterator[str]:
        """Takes the entry in; yields what it contradicts."""
        if view.kind == INTENT:
            self._holding[str(view.call_id)] = view.predicate.get("run_id"), _amounts(view.predicate.get("reserved"))
        elif view.kind == ACT:
            yield from self._read_act(view)
        elif view.predicate.get("opened") is True:
            yield from self._read_result(view, str(view.call_id))

    def _read_act(self, view: EntryView) -> Iterator[str]:
        if view.act not in _PROCESS_ACTS:
            return
        said = view.predicate.get("details")
        details = said if isinstance(said, Mapping) else {}
        call_id = str(details.get("call_id"))
        if view.act == ActKind.PROCESS_STARTED:
            self._running.add(call_id)
            return
        self._running.discard(call_id)
        _, reserved = self._holding.pop(call_id, (None, None))
        if details.get("usage") is None and _is_less(details.get("spent"), reserved):
            yield f"Entry {view.index} counts less for a lost process than was held for it."

    def _read_result(self, view: EntryView, call_id: str) -> Iterator[str]:
        status = view.predicate.get("status")
        if status == "completed" and call_id in self._running:
            return
        _, reserved = self._holding.pop(call_id, (None, None))
        if status == "interrupted" and _is_less(view.predicate.get("spent"), reserved):
            yield f"Entry {view.index} counts less for an interrupted call than was held for it."

    def check(self, rows: Iterable[HeldRow], *, from_index: int) -> Iterator[str]:
        """`from_index`: intents before it may have been removed by retention."""
        for row in rows:
            name = row.call_id[:40]
            known = self._holding.pop(row.call_id, None)
            run_id, reserved = known or (row.run_id, None)
            is_old = row.is_kept and (from_index > 0 or row.call_id not in self._running)
            if known is None and not is_old:
                yield f"An amount of a budget is held for call {name}, which is not under way."
            elif row.run_id != run_id or row.amounts != (reserved or row.amounts) or min(row.amounts) < 0:
                yield f"What is held of a budget for call {name} is not what its entry says."
        for call_id, (_, reserved) in self._holding.items():
            if reserved is not None:
                yield f"Nothing is held of a budget for call {call_id[:40]}, whose entry says that it is."


def _is_less(spent: Json, reserved: tuple[Json, ...] | None) -> bool:
    """Whoever took away what was held before nobody knew what was used."""
    return reserved is not None and _amounts(spent) != reserved


def _amounts(said: Json) -> tuple[Json, ...] | None:
    """None where it does not say them, or one was too large for an entry."""
    amounts = tuple(said.get(name) for name in RESOURCES) if isinstance(said, Mapping) else ()
    return amounts if amounts and all(isinstance(amount, int) for amount in amounts) else None
