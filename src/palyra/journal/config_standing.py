"""The digest of the configuration that the database knows, held against what the entries say of it.

Found: another configuration that somebody had taken for the one before, by writing its digest beside it: nothing then
told of the change. The act `config.changed` names both digests in the transaction of the row, so each goes on from the
last, and the newest is the row's. Not found: a change before the first act, of which the calls' own entries tell alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView


class ConfigStanding:
    def __init__(self) -> None:
        self._newest: object = None
        self._astray: list[int] = []

    def read(self, view: EntryView) -> None:
        if view.act != ActKind.CONFIG_CHANGED:
            return
        details = view.predicate.get("details")
        told = details if isinstance(details, Mapping) else {}
        if self._newest is not None and told.get("before_sha256") != self._newest:
            self._astray.append(view.index)
        self._newest = told.get("after_sha256")

    def check(self, recorded: str) -> Iterator[str]:
        """`recorded` is empty where the database knows none."""
        for index in self._astray:
            yield f"Entry {index} changes another configuration than the entry before it left."
        if self._newest is not None and self._newest != recorded:
            yield "The configuration that the database names is not the one that the newest entry about it left."
