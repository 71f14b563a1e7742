"""Approvals, held against what the entries say of them.

Found: an approval that was made, widened, prolonged, revived or deleted in its row; one
that was decided twice, by who asked for it, or by an agent; a call that used an approval which nobody gave, which was
over, or which had been used. Fed with every entry in order, then with the rows. Not here: the tree (journal/audit).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from palyra.canon import Json
from palyra.journal.chain import ACT, INTENT
from palyra.journal.commitments import commit_value
from palyra.journal.entry import EntryView
from palyra.values import dataclass

_ENDS = {"approval.expired": "expired", "approval.revoked": "revoked"}
_ENDED_FROM = {"approval.expired": ("pending",), "approval.revoked": ("approved", "denied")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """An approval as its row has it; `values` are compared by name, `kept` with the entries' commitments."""

    approval_id: str
    values: Mapping[str, Json]
    kept: tuple[tuple[str, bytes, bytes], ...]
    """(field, salt, value): the request, and the terms where it was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    principal: Json
    tool: Json
    requested_index: int
    state: str = "pending"
    decided_index: int | None = None
    ended_index: int | None = None
    decided_by: Json = None
    scope: Json = None
    valid_until_unix_ms: Json = None
    uses: int = 0
    macs: Mapping[str, Json] = field(default_factory=dict)


_COMPARED = tuple(
    "principal tool state requested_index decided_index ended_index decided_by scope valid_until_unix_ms uses".split()
)


class Standing:
    def __init__(self) -> None:
        self._approvals: dict[str, _Said] = {}

    def read(self, view: EntryView) -> Iterator[str]:
        """Takes the entry in; yields what it contradicts."""
        if view.kind == INTENT:
            yield from self._read_use(view)
        elif view.kind == ACT and view.act.startswith("approval."):
            yield from self._read_act(view.act, view)

    def _read_act(self, act: str, view: EntryView) -> Iterator[str]:
        details, at = view.predicate.get("details"), view.index
        said = details if isinstance(details, Mapping) else {}
        name = str(said.get("approval_id"))
        known = self._approvals.get(name)
        if act == "approval.requested":
            if known is not None:
                yield f"Entry {at} asks for approval {name} a second time."
            fresh = _Said(principal=said.get("principal"), tool=said.get("tool"), requested_index=at)
            self._approvals[name] = replace(fresh, macs=_macs(view))
        elif known is None:
            yield f"Entry {at} is about approval {name}, which nobody asked for."
        elif act == "approval.decided":
            yield from self._decided(name, known, said, view)
        elif act in _ENDS:
            if known.state not in _ENDED_FROM[act]:
                yield f"Entry {at} ends approval {name}, which was {known.state}."
            if known.state == "denied" and view.predicate.get("actor") == known.principal != known.decided_by:
                yield f"Entry {at} has who asked for approval {name} take back another's no."
            self._approvals[name] = replace(known, state=_ENDS[act], ended_index=at)

    def _decided(self, name: str, known: _Said, said: Mapping[str, Json], view: EntryView) -> Iterator[str]:
        actor, at = view.predicate.get("actor"), view.index
        if known.state != "pending":
            yield f"Entry {at} decides approval {name}, which was {known.state}."
        if not str(actor).startswith("user:"):
            yield f"Entry {at} has approval {name} decided by {str(actor)[:80]}, who is not a person."
        if actor == known.principal and said.get("self_approved") is not True:
            yield f"Entry {at} has approval {name} decided by the principal who asked for it."
        self._approvals[name] = replace(
            known,
            state=str(said.get("decision")),
            decided_index=at,
            decided_by=actor,
            scope=said.get("scope"),
            valid_until_unix_ms=said.get("valid_until_unix_ms"),
            macs={**known.macs, **_macs(view)},
        )

    def _read_use(self, view: EntryView) -> Iterator[str]:
        if (name := approval_of(view)) is None:
            return
        known, at = self._approvals.get(name), view.index
        if known is None or known.state != "approved" or known.principal != view.predicate.get("principal"):
            yield f"Entry {at} runs a call on approval {name[:40]}, which did not allow it."
        elif known.scope == "once" and known.uses:
            yield f"Entry {at} runs a call on approval {name}, which was already used."
        elif not isinstance(known.valid_until_unix_ms, int) or view.at_unix_ms >= known.valid_until_unix_ms:
            yield f"Entry {at} runs a call on approval {name}, which had expired."
        if known is not None:
            self._approvals[name] = replace(known, uses=known.uses + 1)

    def go_on(self, uses: Mapping[str, int]) -> None:
        """By calls that retention removed: else an approval that was used up could be made good again behind them."""
        for name, count in uses.items():
            if (known := self._approvals.get(name)) is not None:
                self._approvals[name] = replace(known, uses=known.uses + count)

    def check_approvals(self, rows: Iterable[ApprovalRow], *, from_index: int = 0, uncounted: int = 0) -> Iterator[str]:
        """`from_index`: calls before it may have been removed by retention. Older versions took salts with them: what
        cannot be opened is not compared there, and the row has a seal. `uncounted`: nor did they tell how often what
        was asked for before it had been used."""
        for row in rows:
            said = self._approvals.pop(row.approval_id, None)
            if said is None:
                yield f"The row of approval {row.approval_id[:40]} has no entry."
                continue
            is_old = said.requested_index < from_index
            if said.requested_index < uncounted:
                said = replace(said, uses=_at_least(said.uses, row.values.get("uses")))
            wrong = [name for name in _COMPARED if row.values.get(name) != getattr(said, name)]
            kept = [one for one in row.kept if one[1] or not is_old]
            wrong += [name for name, salt, value in kept if _mac(name, value, salt) != said.macs.get(name, "")]
            if wrong:
                yield f"The row of approval {row.approval_id} differs from its entries: {', '.join(wrong)}."
        for name in self._approvals:
            yield f"The row of approval {name} is missing."


def approval_of(view: EntryView) -> str | None:
    """The one that an intent says let its call through."""
    decision = view.predicate.get("decision") if view.kind == INTENT else None
    name = decision.get("approval_id") if isinstance(decision, Mapping) else None
    return name if isinstance(name, str) else None


def _at_least(counted: int, stored: Json) -> int:
    return max(counted, stored) if isinstance(stored, int) else counted


def _macs(view: EntryView) -> Mapping[str, Json]:
    macs = view.predicate.get("commitments")
    return macs if isinstance(macs, Mapping) else {}


def _mac(name: str, value: bytes, salt: bytes) -> str | None:
    try:
        return commit_value(name, value, salt).mac
    except ValueError:
        return None
