"""Which rows of background processes may be ended as lost, and which of them name what may be killed.

A row alone is nobody's word. What is killed at the next start is a pid with its start time, and groups by their paths:
who can write the database, and has no key, would choose them. So only what the start's own entry says is killed, and
only where that entry is in the tree of the newest signed checkpoint. A row that says anything else than its entry is
left as it is: an end of it would be an entry that is not true. One that no entry tells of may be an older version's: it
is ended, and nothing is killed for it. `palyra journal verify` finds both kinds of edits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from palyra.errors import StateError
from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.journal.lookup import Lookup
from palyra.journal.process_standing import start_details
from palyra.model.process import BackgroundProcess
from palyra.state.writer import Writer

log = logging.getLogger("palyra.processes")


def lost_processes(writer: Writer, gone: Sequence[BackgroundProcess]) -> list[tuple[BackgroundProcess, bool]]:
    """Those of `gone` that may be ended, and of each whether its entry says what its row says."""
    subjects = frozenset(f"process/{process.process_id}" for process in gone)
    try:
        told = Lookup(writer.rows, writer.home.verifier).acts_about(subjects, ActKind.PROCESS_STARTED.value)
    except StateError as error:
        log.warning("background processes were left as they are: %s", error)
        return []
    found = [(process, told.get(f"process/{process.process_id}")) for process in gone]
    for process, view in found:
        if view is not None and not _agree(process, view):
            log.warning("process %.40s was left as it is: its row is not what its entry says", process.process_id)
    return [(process, view is not None) for process, view in found if view is None or _agree(process, view)]


def _agree(process: BackgroundProcess, view: EntryView) -> bool:
    said = view.predicate
    return (said.get("run_id"), said.get("details")) == (process.owner.run_id, start_details(process))
