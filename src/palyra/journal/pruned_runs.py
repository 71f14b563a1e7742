"""Rows of runs as they were when retention removed entries of theirs: what the audit goes on counting from.

What a run has used is counted by its entries. Where those are gone, nothing would be left to compare its row with: who
can write the database would make another run of it, with other limits. So the act `entries.pruned` names a digest of
the rows of all runs that had entries there; the rows themselves are kept beside, by that digest. A run that nobody told
of then is one that somebody made up.

Not here: the counting (journal/audit_calls), the rows (state/segments, state/rows).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from palyra.canon import sha256_hex
from palyra.journal.audit_calls import SPENT_NAMES, RunRow
from palyra.journal.commitments import SALT_BYTES, run_commitment
from palyra.model.outcome import LIMIT_NAMES

_COUNTED = ("run_id", "principal", "calls_used", "attempts_used", "next_sequence", "created_unix_ms")
_WRITTEN = (*_COUNTED, *SPENT_NAMES, *LIMIT_NAMES)
COLUMNS = (*_WRITTEN, "workspace", "salt")
"""Of `runs`. All but the last two are written as they are, and those as the commitment of the run's first entry."""


def write_runs(rows: Iterable[tuple[Any, ...]]) -> bytes:
    """Each row has `COLUMNS`; a line each, by name, so that later versions may say more."""
    return b"".join(orjson.dumps(_line(*row)) + b"\n" for row in sorted(rows))


def _line(*row: Any) -> dict[str, Any]:
    *plain, workspace, salt = row
    said = dict(zip(_WRITTEN, plain, strict=True))
    if not isinstance(salt, bytes) or len(salt) != SALT_BYTES:  # a run of an older version
        return said
    return said | {"run_commitment": run_commitment(workspace, said["created_unix_ms"], salt)}


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
    begun = said.get("run_commitment")
    return RunRow(run_id, principal, calls, attempts, sequence, spent, limits, began_unix_ms=began, commitment=begun)
