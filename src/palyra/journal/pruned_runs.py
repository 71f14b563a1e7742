"""What is kept of runs and approvals when retention removes entries of theirs: what the audit goes on counting from.

What a run has used is counted by its entries. Where those are gone, nothing would be left to compare its row with: who
can write the database would make another run of it, with other limits. So the act `entries.pruned` names a digest of
the rows of all runs that had entries there; the rows themselves are kept beside, by that digest. A run that nobody told
of then is one that somebody made up. What a run made by name narrows, and that an approval was used, is told by calls
alone as well: the digest of such terms goes into the run's line, like the commitment of its first entry to where it
works; how often approvals were used goes into a value of its own. All are taken from the entries, which are signed, and
not from rows.

Not here: the counting (journal/audit_calls, journal/standing), the rows (state/segments, state/rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from palyra.canon import sha256_hex
from palyra.journal.audit_calls import SPENT_NAMES, RunRow
from palyra.journal.entry import EntryView
from palyra.journal.standing import approval_of
from palyra.model.outcome import LIMIT_NAMES

_COUNTED = ("run_id", "principal", "calls_used", "attempts_used", "next_sequence", "created_unix_ms")
COLUMNS = (*_COUNTED, *SPENT_NAMES, *LIMIT_NAMES)
"""Of `runs`, as they are written."""
_TOLD = _TERMS, _COMMITMENT = "terms_sha256", "run_commitment"


class Gone:
    """What entries that are about to be removed say, told one after the other."""

    def __init__(self) -> None:
        self.of_runs: dict[str, dict[str, str]] = {}
        """What its calls alone tell of each of their runs."""
        self.uses: dict[str, int] = {}
        """Of each approval that let calls through, how many."""

    def read(self, view: EntryView) -> None:
        if view.run_id is None:
            return
        told = self.of_runs.setdefault(view.run_id, {})
        told.update((name, said) for name in _TOLD if isinstance(said := view.predicate.get(name), str))
        if (approval_id := approval_of(view)) is not None:
            self.uses[approval_id] = self.uses.get(approval_id, 0) + 1


def write_runs(rows: Iterable[tuple[Any, ...]], gone: Gone) -> bytes:
    """Each row has `COLUMNS`; a line each, by name, so that later versions may say more."""
    said = (dict(zip(COLUMNS, row, strict=True)) for row in sorted(rows))
    return b"".join(orjson.dumps(one | gone.of_runs.get(one["run_id"], {})) + b"\n" for one in said)


def write_uses(uses: Mapping[str, int]) -> bytes:
    return orjson.dumps(uses, option=orjson.OPT_SORT_KEYS)


def read_uses(data: bytes | None, sha256: object) -> Mapping[str, int] | None:
    """None where it is not what the act names, or is gone."""
    if data is None or sha256_hex(data) != sha256:
        return None
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return said if isinstance(said, dict) and set(map(type, said.values())) <= {int} else None


def read_runs(data: bytes | None, sha256: object) -> tuple[RunRow, ...] | None:
    """None where it is not what the act names, or is gone."""
    if data is None or sha256_hex(data) != sha256:
        return None
    try:
        return tuple(_row(orjson.loads(line)) for line in data.splitlines())
    except (ValueError, KeyError, TypeError):  # whoever edits the act as well chooses what it names
        return None


def _row(said: dict[str, Any]) -> RunRow:
    run_id, principal, calls, attempts, sequence, began = (said[name] for name in _COUNTED)
    counts = (calls, attempts, sequence, began, *(said[name] for name in SPENT_NAMES))
    if not isinstance(run_id, str) or not isinstance(principal, str) or any(type(count) is not int for count in counts):
        raise ValueError("this is no row of a run")
    spent, limits = tuple(said[name] for name in SPENT_NAMES), {name: said[name] for name in LIMIT_NAMES}
    # Older versions kept neither.
    return RunRow(
        run_id, principal, calls, attempts, sequence, spent, limits,
        terms_sha256=said.get(_TERMS), began_unix_ms=began, commitment=said.get(_COMMITMENT),
    )  # fmt: skip
