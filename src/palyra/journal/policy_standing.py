"""Which policies are in use, held against what the entries say of it.

Found: a pointer that somebody set back to earlier policies, or on to some that nobody put in use; a use that was made
or changed in its row; a way back that leads to others than were in use before, also after an operator took it. Rows are
unsigned, and the acts `policy.used` and `policy.rolled_back` say what they hold; the newest of them is in force. Not
found: a pointer that was put back before anybody looked. Each entry of a call names by its digest what decided it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.values import dataclass

_ACTS = frozenset({ActKind.POLICY_USED.value, ActKind.POLICY_ROLLED_BACK.value})

Use = tuple[object, object]
"""The version (None: the folder), and who put it in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRows:
    uses: Sequence[Use]
    """Without the beginning, of which no entry tells."""
    in_use: object
    """The version in force; None for the folder."""
    before: Sequence[object]
    """The versions that rolling back leads to, step by step."""


class PolicyStanding:
    def __init__(self) -> None:
        self._uses: set[Use] = set()
        self._newest: object = None
        self._before: list[object] = []
        """What rolling back leads to, the next step last."""
        self._astray = False

    def read(self, view: EntryView) -> None:
        if view.act not in _ACTS:
            return
        details = view.predicate.get("details")
        if isinstance(details, Mapping) and "version" in details:
            version = str(details["version"]) if details["version"] is not None else None
            self._step(view.act, version)
            self._newest = version
            self._uses.add((self._newest, str(view.predicate.get("actor"))))

    def _step(self, act: str, version: str | None) -> None:
        if act == ActKind.POLICY_USED:
            self._before.append(self._newest)
        else:
            expected = self._before.pop() if self._before else None
            self._astray = self._astray or version != expected

    def check(self, rows: PolicyRows) -> Iterator[str]:
        if rows.in_use != self._newest:
            yield "The policies in use are not those that the newest entry about them names."
        if self._astray or list(rows.before) != self._before[::-1]:
            yield "Rolling the policies back does not lead to those that were in use before."
        if not self._uses.issuperset(rows.uses):
            yield "A row says that policies were put in use, and no entry says so."
