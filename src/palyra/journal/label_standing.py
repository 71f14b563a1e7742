"""Labels of runs, held against what the entries say of them.

Found: a label that somebody took off a run, or moved to another's, so that policy no longer asks about what the run did
before. Rows are unsigned, and the act `run.labelled` says what they hold. Not found: a label that somebody put on a run
(journals of older versions tell of none): it has policy ask more, not less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView

Label = tuple[str, str, str]
"""Of which run, for which principal, which one."""


class LabelStanding:
    def __init__(self) -> None:
        self._told: set[Label] = set()

    def read(self, view: EntryView) -> None:
        if view.act != ActKind.RUN_LABELLED:
            return
        details = view.predicate.get("details")
        told = details if isinstance(details, Mapping) else {}
        run_id, labels = view.subject.removeprefix("run/"), told.get("labels")
        for label in labels if isinstance(labels, list) else ():
            self._told.add((run_id, str(told.get("principal")), str(label)))

    def check(self, rows: Iterable[Label]) -> Iterator[str]:
        for run_id, _, label in sorted(self._told.difference(rows)):
            yield f"The row of label {label[:40]} of run {run_id[:40]} is missing."
