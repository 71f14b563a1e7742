"""Background processes, held against what the entries say of them.

Found: a process that was given to another run or principal, who could then read its output and stop it; one that was
prolonged, or that says another pid, keeper or group, so that somebody else's would be killed in its place; an end that
was made up, changed or taken back; a row that is gone, or that nobody started. Rows are unsigned, and the acts
`process.started` and `process.ended` say what they hold. Older versions told of ends alone: what they started, by a
call from before the first `process.started` that asked for a background process, is passed over. An end is no excuse
for a start that nobody told of: Palyra itself ends whatever row has no living keeper, a forged one too. Not found:
another program's name in the row, and other names of files that appeared, since no entry holds either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.canon import Json, sha256_hex
from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.model.process import BackgroundProcess
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    process_id: str
    said: Mapping[str, object]
    """As the two acts name their details; `run_id` and `ended_unix_ms` stand in an act's own members."""
    is_running: bool
    call_index: int | None
    """Of the intent of the same run's and principal's call, by its row; None where there is none."""
    is_asked_for: bool | None
    """Whether that call asked for a background process, by what is kept of it; None where nothing is."""


def cgroups_sha256(cgroups: str) -> str:
    """Of their paths, a line each; they tell of the machine."""
    return sha256_hex(cgroups.encode("utf-8", "surrogatepass"))


def named(process: BackgroundProcess) -> dict[str, Json]:
    """Which one it is, as both of its entries say."""
    return {
        "process_id": process.process_id,
        "call_id": process.call_id,
        "principal": process.owner.principal,
        "lifetime": process.lifetime.value,
    }


def start_details(process: BackgroundProcess) -> dict[str, Json]:
    """What `process.started` says of it."""
    return {
        **named(process),
        "started_unix_ms": process.started_unix_ms,
        "expires_unix_ms": process.expires_unix_ms,
        "pid": process.pid,
        "start_ticks": process.start_ticks,
        "keeper": process.keeper.as_json(),
        "cgroups_sha256": cgroups_sha256("\n".join(process.cgroups)),
    }


class ProcessStanding:
    def __init__(self) -> None:
        self._told: dict[str, dict[str, object]] = {}
        self._ended: set[str] = set()
        self._started: dict[str, str] = {}
        """By process, the call that started it: each starts one."""
        self._first: int | None = None

    def read(self, view: EntryView) -> None:
        act, process_id = view.act, view.subject.removeprefix("process/")
        if act not in (ActKind.PROCESS_STARTED, ActKind.PROCESS_ENDED):
            return
        details = view.predicate.get("details")
        told = self._told.get(process_id, {"run_id": view.predicate.get("run_id")})
        # What its start said stands: an end that names another call or principal was written of a row that was changed.
        said = dict(details) if isinstance(details, Mapping) else {}
        told = self._told[process_id] = said | told
        if act == ActKind.PROCESS_ENDED:
            self._ended.add(process_id)
            told["ended_unix_ms"] = view.at_unix_ms
            return
        self._started[process_id] = str(told.get("call_id"))  # who edits an entry chooses what stands there
        if self._first is None:
            self._first = view.index

    def check(self, rows: Iterable[ProcessRow], *, from_index: int) -> Iterator[str]:
        """`from_index`: rows of calls before it may have been removed by retention."""
        calls = set(self._started.values())
        for row in rows:
            told = self._told.pop(row.process_id, None)
            if told is None and not row.is_running:
                yield f"The row of process {row.process_id[:40]} has no entry."
            elif told is not None and not self._is_told(row, told):
                yield f"The row of process {row.process_id[:40]} is not what its entries say."
            elif row.process_id not in self._started and not self._is_older(row, calls, from_index):
                yield f"The row of process {row.process_id[:40]} has no entry that says it was started."
        for process_id in self._told:
            yield f"The row of process {process_id[:40]} is missing."

    def _is_older(self, row: ProcessRow, calls: set[str], from_index: int) -> bool:
        if row.is_asked_for is False or row.said.get("call_id") in calls:
            return False
        if row.call_index is None:
            return not row.is_running and from_index > 0
        return self._first is None or row.call_index < self._first

    def _is_told(self, row: ProcessRow, told: Mapping[str, object]) -> bool:
        same = all(_agree(told.get(name, value), value) for name, value in row.said.items())
        return same and row.is_running is not (row.process_id in self._ended)


def _agree(told: object, stored: object) -> bool:
    """An entry may say more of what was used than a row holds."""
    if isinstance(told, Mapping) and isinstance(stored, Mapping):
        return all(told.get(name) == value for name, value in stored.items())
    return told == stored
