"""Calls for operators: those under way, those that ended (newest first, found by a question), one with its record.

Ended calls are listed from the journal, by place: ids and clocks are a caller's to choose, places are not, so nothing
can be slipped behind what was read already. Not here: how a call looks (the doors), the record itself (journal_desk).
"""

from __future__ import annotations

from dataclasses import replace

from palyra.canon import Json
from palyra.journal.entry import EntryView, parse_entry
from palyra.journal.search import Question
from palyra.model.record import Entry
from palyra.state.writer import Writer
from palyra.values import dataclass
from palyra.wiring.journal_desk import JournalDesk

OPEN = "open"
_OF_RUN = """SELECT call_id, run_id, tool, principal, status, reason, opened_unix_ms, closed_unix_ms, result_index
             FROM calls WHERE run_id = ? ORDER BY opened_unix_ms DESC, call_id DESC LIMIT ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """One call as a list shows it."""

    call_id: str
    run_id: str
    tool: str
    principal: str
    status: str
    """`open` while it is under way."""
    reason: str | None
    at_unix_ms: int
    """When it ended, or began if it has not."""
    index: int | None = None
    """Of its result in the journal."""
    wall_us: int | None = None
    approval_id: str | None = None
    kept: bool = True
    """False for what never became a call, or waits for a person: there is no record of its own."""

    def as_json(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}


class CallDesk:
    def __init__(self, writer: Writer, journal: JournalDesk) -> None:
        self._writer = writer
        self._journal = journal

    def under_way(self) -> tuple[CallLine, ...]:
        found = sorted(self._journal.lookup.open_calls(), key=lambda call: call.opened_unix_ms, reverse=True)
        return tuple(
            CallLine(
                call_id=call.call_id,
                run_id=call.run_id,
                tool=call.tool,
                principal=call.principal,
                status=OPEN,
                reason=None,
                at_unix_ms=call.opened_unix_ms,
            )
            for call in found
        )

    async def ended(
        self, question: Question, *, count: int, before: int | None = None
    ) -> tuple[tuple[CallLine, ...], int | None]:
        """A page, newest first, and the cursor of the next one."""
        page = await self._journal.page(replace(question, kind="result"), count=count, before=before)
        return tuple(filter(None, map(line_of, page.entries))), page.next

    def of_run(self, run_id: str, *, count: int) -> tuple[CallLine, ...]:
        return tuple(
            CallLine(
                call_id=call_id,
                run_id=run,
                tool=tool,
                principal=principal,
                status=status,
                reason=reason,
                at_unix_ms=opened,
                index=index,
                wall_us=None if closed is None else max(0, closed - opened) * 1000,
            )
            for call_id, run, tool, principal, status, reason, opened, closed, index in self._writer.rows(
                _OF_RUN, (run_id, count)
            )
        )


def line_of(entry: Entry) -> CallLine | None:
    """None for what cannot be read as a result."""
    try:
        view = parse_entry(entry.body)
    except ValueError:
        return None
    return _line(view)


def _line(view: EntryView) -> CallLine:
    said = view.predicate
    usage, decision = said.get("usage") or {}, said.get("decision") or {}
    return CallLine(
        call_id=view.call_id or "",
        run_id=str(said.get("run_id")),
        tool=str(said.get("tool")),
        principal=str(said.get("principal")),
        status=str(said.get("status")),
        reason=said.get("reason"),
        at_unix_ms=view.at_unix_ms,
        index=view.index,
        wall_us=usage.get("wall_us"),
        approval_id=decision.get("approval_id"),
        kept=said.get("kept") is not False,
    )
