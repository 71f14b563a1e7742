"""The rows of approvals: how they are found, made and changed. Statements alone, in whatever transaction they are.

Rules: a row that is none of ours counts as absent, and `palyra journal verify` names it; a change is made only from the
state it was judged in. Not here: whether a row says what was decided (seals), what it then allows (approvals/rules).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from palyra.errors import Reason, Rejected
from palyra.model.approval import COLUMNS, Approval, ApprovalState, Fatigue, Question, parse_row
from palyra.state.database import Rows
from palyra.state.transaction import Transaction

log = logging.getLogger("palyra.approvals")

LAST = "\uffff"
"""Past every id, for a list that begins with the newest."""
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM approvals "  # noqa: S608  # column names of our own
_INSERT = f"INSERT INTO approvals ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_CHANGING = tuple("state decided_unix_ms decided_by self_approved note scope pattern valid_until_unix_ms".split())
_UPDATE = (
    f"UPDATE approvals SET {', '.join(f'{name} = ?' for name in _CHANGING)}, decided_index = ?, ended_index = ?, "  # noqa: S608
    "seal = ? WHERE approval_id = ? AND state = ?"
)
_CANDIDATES = 200


def find(source: Rows, approval_id: str) -> Approval | None:
    return _first(source, "WHERE approval_id = ?", (approval_id,))


def find_known(source: Rows, approval_id: str) -> Approval:
    approval = find(source, approval_id)
    if approval is None:
        raise Rejected(Reason.BAD_ARGUMENTS, f"There is no approval {approval_id[:40]!r}.", "palyra approvals list")
    return approval


def find_last(source: Rows, binding: str) -> Approval | None:
    """The newest that is about the very same call."""
    return _first(source, "WHERE binding = ? ORDER BY approval_id DESC LIMIT 1", (binding,))


def find_earlier(source: Rows, approval: Approval) -> Approval | None:
    """The last yes to this principal for this program."""
    where = """WHERE principal = ? AND tool = ? AND program = ? AND approval_id < ?
               AND state IN ('approved', 'revoked') AND scope IS NOT NULL ORDER BY approval_id DESC LIMIT 1"""
    return _first(source, where, (approval.principal, approval.tool, approval.program, approval.approval_id))


def find_grants(source: Rows, question: Question, *, now_unix_ms: int) -> tuple[Approval, ...]:
    """That may cover it, those that last longest first."""
    where = """WHERE principal = ? AND tool = ? AND state = 'approved' AND valid_until_unix_ms > ?
               ORDER BY valid_until_unix_ms DESC LIMIT ?"""
    return _read(source, where, (question.principal, question.tool, now_unix_ms, _CANDIDATES))


def list_newest(source: Rows, states: Sequence[ApprovalState], *, before: str, count: int) -> tuple[Approval, ...]:
    marks = ", ".join("?" * len(states))
    where = f"WHERE state IN ({marks}) AND approval_id < ? ORDER BY approval_id DESC LIMIT ?"
    return _read(source, where, (*states, before, count))


def list_grants(source: Rows, *, now_unix_ms: int) -> tuple[Approval, ...]:
    """Those that still let something through."""
    where = "WHERE state = 'approved' AND valid_until_unix_ms > ? ORDER BY approval_id DESC"
    found = _read(source, where, (now_unix_ms,))
    return tuple(approval for approval in found if approval.scope != "once" or not approval.uses)


def list_overdue(source: Rows, *, now_unix_ms: int) -> list[str]:
    sql = "SELECT approval_id FROM approvals WHERE state = 'pending' AND expires_unix_ms <= ?"
    return [row[0] for row in source.rows(sql, (now_unix_ms,))]


def count_pending(source: Rows, principal: str) -> int:
    sql = "SELECT count(*) FROM approvals WHERE principal = ? AND state = 'pending'"
    waiting: int = source.rows(sql, (principal,))[0][0]
    return waiting


def count_fatigue(source: Rows, approval: Approval) -> dict[str, Fatigue]:
    """For the very same call, and for anything of this program that this principal asked for."""
    program = (approval.principal, approval.tool, approval.program)
    return {
        "same_call": _count(source, "likeness = ?", (approval.likeness,)),
        "same_program": _count(source, "principal = ? AND tool = ? AND program = ?", program),
    }


def insert(tx: Transaction, approval: Approval) -> None:
    tx.execute(_INSERT, approval.as_row())


def change(tx: Transaction, before: Approval, after: Approval) -> Approval:
    """Compare-and-set: only from the state it was judged in."""
    values = tuple(getattr(after, name) for name in _CHANGING)
    ids = (after.decided_index, after.ended_index, after.seal, after.approval_id, before.state)
    if tx.execute(_UPDATE, (*values, *ids)).rowcount != 1:
        raise Rejected(Reason.BUSY, "The approval was changed by somebody else.", "Look at it again.")
    return after


def _first(source: Rows, where: str, key: tuple[object, ...]) -> Approval | None:
    return next(iter(_read(source, where, key)), None)


def _read(source: Rows, where: str, key: tuple[object, ...]) -> tuple[Approval, ...]:
    found = []
    for row in source.rows(_SELECT + where, key):
        try:
            found.append(parse_row(row))
        except ValueError:
            log.warning("approval %.40s cannot be read: run palyra journal verify", row[0])
    return tuple(found)


def _count(source: Rows, where: str, key: tuple[object, ...]) -> Fatigue:
    sql = f"""SELECT coalesce(sum(asks), 0), count(*) FILTER (WHERE scope IS NOT NULL),
                     count(*) FILTER (WHERE decided_index IS NOT NULL AND scope IS NULL),
                     count(*) FILTER (WHERE state = 'expired')
              FROM approvals WHERE {where}"""  # noqa: S608  # conditions of our own
    asked, approved, denied, expired = source.rows(sql, key)[0]
    return Fatigue(asked=asked, approved=approved, denied=denied, expired=expired)
