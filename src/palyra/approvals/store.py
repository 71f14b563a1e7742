"""Approvals on the database: asked, decided, expired, revoked and used, each in one transaction with its entry.

Rules: a request is decided once, under the writer's lock, whoever races; a grant is used in the transaction of the
call's intent, so of two repeats only one can use a `once`; request and terms are signed with the installation's key,
the one checked before anybody looks or decides, the other at every use: an edited row shows a person nothing and
grants nothing. Arguments enter entries only as commitments.

Not here: what binds and who may decide (rules), how it looks (cli/approvals).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from palyra.approvals import rules
from palyra.canon import Json
from palyra.errors import Reason, Rejected, StateError, TrustError
from palyra.journal.acts import Act, ActKind
from palyra.journal.commitments import SALT_BYTES, commit_value
from palyra.model.approval import COLUMNS, Approval, ApprovalState, Fatigue, Permission, Question, parse_row
from palyra.model.record import EntryDraft
from palyra.state.database import Rows
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

log = logging.getLogger("palyra.approvals")

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM approvals "  # noqa: S608  # column names of our own
_INSERT = f"INSERT INTO approvals ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_CHANGING = tuple("state decided_unix_ms decided_by self_approved note scope pattern valid_until_unix_ms".split())
_UPDATE = (
    f"UPDATE approvals SET {', '.join(f'{name} = ?' for name in _CHANGING)}, decided_index = ?, ended_index = ?, "  # noqa: S608
    "seal = ? WHERE approval_id = ? AND state = ?"
)
_ASKED = b"palyra approval request v1\n"
_SEAL = b"palyra approval v1\n"
_CANDIDATES = 200
ACTOR = "palyra"
LAST = "\uffff"
"""Past every id, for a list that begins with the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    request_ms: int
    grant_ms: int
    max_pending: int


class ApprovalStore:
    def __init__(
        self,
        writer: Writer,
        *,
        times: Times,
        new_id: Callable[[], str],
        now_unix_ms: Callable[[], int],
        announce: Callable[[Approval], None] = lambda approval: None,
    ) -> None:
        self._writer = writer
        self._times = times
        self._new_id = new_id
        self._now = now_unix_ms
        self._announce = announce

    # ── the engine's port ──

    async def ask(self, question: Question) -> Approval:
        """A grant that covers it, what was last said to it, or a request that now waits."""
        now = self._now()
        granted = self._grant_for(self._writer, question, now)
        if granted is not None:
            return granted
        approval, receipt = await self._writer.commit(lambda tx: self._ask(tx, question, now))
        if receipt is not None and approval.state is ApprovalState.PENDING:
            self._announce(approval)
        return approval

    async def look(self, approval_id: str) -> Approval:
        """As it stands now; one that nobody decided in time is ended first."""
        approval = self.find(approval_id)
        if approval is None:
            raise _unknown(approval_id)
        now = self._now()
        if rules.is_overdue(approval, now_unix_ms=now):
            return (await self._writer.commit(lambda tx: self._expire(tx, approval_id, now)))[0]
        return approval

    async def decide(self, approval_id: str, verdict: rules.Verdict) -> Approval:
        """`Rejected` when it may not be decided so, or was decided before."""
        await self.look(approval_id)
        return (await self._writer.commit(lambda tx: self._decide(tx, approval_id, verdict, self._now())))[0]

    async def confirm(self, approval_id: str, *, by: str, approved: bool) -> Approval:
        """By who made the call, at its terminal; where another was quicker, what that one said stands."""
        approval = await self.look(approval_id)
        if approval.state is not ApprovalState.PENDING:
            return approval
        verdict = rules.Verdict(approved=approved, by=by, at_terminal=True)
        try:
            return await self.decide(approval_id, verdict)
        except Rejected as refusal:
            if refusal.reason is Reason.CAPABILITY_DENIED:
                raise
            return await self.look(approval_id)

    # ── inside the transaction of a call's intent ──

    def use(self, tx: Transaction, permission: Permission, *, at_unix_ms: int) -> None:
        """`Rejected` when it no longer covers the call: used, revoked or over since it was found."""
        approval = _find(tx, permission.approval_id)
        sound = approval is not None and self._is_sealed(approval)
        if approval is None or not sound or not rules.covers(approval, permission.question, now_unix_ms=at_unix_ms):
            raise Rejected(
                Reason.NOT_APPROVED,
                "The approval was used by another call, revoked, or is over.",
                "Repeat the call to ask again.",
            )
        tx.execute("UPDATE approvals SET uses = uses + 1 WHERE approval_id = ?", (approval.approval_id,))

    # ── for operators ──

    def find(self, approval_id: str) -> Approval | None:
        return _find(self._writer, approval_id)

    def list(self, *, states: Sequence[ApprovalState], before: str = LAST, count: int = 50) -> tuple[Approval, ...]:
        """The newest first."""
        marks = ", ".join("?" * len(states))
        sql = f"{_SELECT}WHERE state IN ({marks}) AND approval_id < ? ORDER BY approval_id DESC LIMIT ?"
        return _parsed(self._writer.rows(sql, (*states, before, count)))

    def grants(self) -> tuple[Approval, ...]:
        """Those that still let something through."""
        sql = f"{_SELECT}WHERE state = 'approved' AND valid_until_unix_ms > ? ORDER BY approval_id DESC"
        found = _parsed(self._writer.rows(sql, (self._now(),)))
        return tuple(approval for approval in found if approval.scope != "once" or not approval.uses)

    async def view(self, approval_id: str, *, by: str) -> Approval:
        """Somebody looks at all of it: that is an entry too."""
        approval = await self.look(approval_id)
        self._check_asked(approval)
        await self._writer.commit(
            lambda tx: tx.append(_act(ActKind.APPROVAL_VIEWED, by, approval, {}), at_unix_ms=self._now())
        )
        return approval

    async def revoke(self, approval_id: str, *, by: str) -> Approval:
        return (await self._writer.commit(lambda tx: self._revoke(tx, approval_id, by, self._now())))[0]

    def shown(self, approval: Approval) -> Mapping[str, Json]:
        """What the person sees of the call; empty when it is no longer what was asked."""
        rows = self._writer.rows("SELECT data FROM blobs WHERE sha256 = ?", (approval.shown,))
        data = rows[0][0] if rows else b""
        if hashlib.sha256(data).digest() != approval.shown:
            return {}
        value: Mapping[str, Json] = orjson.loads(data)
        return value

    def earlier(self, approval: Approval) -> Approval | None:
        """The last yes to this principal for this program."""
        sql = f"""{_SELECT}WHERE principal = ? AND tool = ? AND program = ? AND approval_id < ?
                  AND state IN ('approved', 'revoked') ORDER BY approval_id DESC LIMIT 1"""
        key = (approval.principal, approval.tool, approval.program, approval.approval_id)
        return next(iter(_parsed(self._writer.rows(sql, key))), None)

    def fatigue(self, approval: Approval) -> dict[str, Fatigue]:
        """For the very same call, and for anything of this program that this principal asked for."""
        program = (approval.principal, approval.tool, approval.program)
        return {
            "same_call": self._count("likeness = ?", (approval.likeness,)),
            "same_program": self._count("principal = ? AND tool = ? AND program = ?", program),
        }

    def _count(self, where: str, key: tuple[object, ...]) -> Fatigue:
        sql = f"""SELECT coalesce(sum(asks), 0), count(*) FILTER (WHERE state IN ('approved', 'revoked')),
                         count(*) FILTER (WHERE state = 'denied'), count(*) FILTER (WHERE state = 'expired')
                  FROM approvals WHERE {where}"""  # noqa: S608  # conditions of our own
        asked, approved, denied, expired = self._writer.rows(sql, key)[0]
        return Fatigue(asked=asked, approved=approved, denied=denied, expired=expired)

    async def expire_overdue(self) -> int:
        """End every request that nobody decided in time; returns how many there were."""
        now = self._now()
        sql = "SELECT approval_id FROM approvals WHERE state = 'pending' AND expires_unix_ms <= ?"
        overdue = [row[0] for row in self._writer.rows(sql, (now,))]
        ended = await asyncio.gather(*(self.look(approval_id) for approval_id in overdue), return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):  # it is overdue all the same, and must keep nobody from starting
                log.warning("a request that is over could not be ended: %s", error)
        return len(overdue)

    # ── transactions ──

    def _ask(self, tx: Transaction, question: Question, now: int) -> Approval:
        granted = self._grant_for(tx, question, now)
        if granted is not None:
            return granted
        rows = tx.rows(_SELECT + "WHERE binding = ? ORDER BY approval_id DESC LIMIT 1", (question.binding,))
        last = _parsed(rows)[0] if rows else None
        if last is None:
            return self._insert(tx, question, now)
        if rules.is_overdue(last, now_unix_ms=now):
            last = self._expire(tx, last.approval_id, now)
        match last.state:
            case ApprovalState.PENDING:
                tx.execute("UPDATE approvals SET asks = asks + 1 WHERE approval_id = ?", (last.approval_id,))
                return replace(last, asks=last.asks + 1)
            case ApprovalState.EXPIRED if not last.told:
                tx.execute("UPDATE approvals SET told = 1 WHERE approval_id = ?", (last.approval_id,))
                return last
            case ApprovalState.DENIED if now < last.expires_unix_ms:
                return last  # a no holds as long as the question would have: who asks on must not wear people down
            case _:
                return self._insert(tx, question, now)

    def _insert(self, tx: Transaction, question: Question, now: int) -> Approval:
        self._check_room(tx, question.principal)
        approval = Approval.of(
            question,
            approval_id=self._new_id(),
            shown=tx.keep_blob(question.shown, at_unix_ms=now),
            asked_unix_ms=now,
            expires_unix_ms=now + self._times.request_ms,
        )
        details: dict[str, Json] = {"expires_unix_ms": approval.expires_unix_ms, "call_id": approval.call_id}
        request = ("request", approval.request_bytes())
        index = tx.append(
            _act(ActKind.APPROVAL_REQUESTED, approval.principal, approval, details, request), at_unix_ms=now
        )
        seal = self._writer.home.key.sign(_ASKED + approval.request_bytes())
        approval = replace(approval, requested_index=index, seal=seal)
        tx.execute(_INSERT, approval.as_row())
        return approval

    def _check_room(self, tx: Transaction, principal: str) -> None:
        sql = "SELECT count(*) FROM approvals WHERE principal = ? AND state = 'pending'"
        waiting = tx.rows(sql, (principal,))[0][0]
        if waiting >= self._times.max_pending:
            raise Rejected(
                Reason.BUSY,
                f"{principal} has {waiting} request{'s' if waiting > 1 else ''} waiting for a person already.",
                "Wait until some are decided, or raise max_pending in [approvals].",
            )

    def _decide(self, tx: Transaction, approval_id: str, verdict: rules.Verdict, now: int) -> Approval:
        before = _known(tx, approval_id)
        self._check_asked(before)
        decided = rules.decide(before, verdict, now_unix_ms=now, grant_ms=self._times.grant_ms)
        terms = decided.terms_bytes()
        details: dict[str, Json] = {
            "decision": decided.state.value,
            "logins": list(verdict.logins),
            "self_approved": bool(decided.self_approved),
            "scope": decided.scope.value if decided.scope else None,
            "has_pattern": bool(decided.pattern),
            "valid_until_unix_ms": decided.valid_until_unix_ms,
        }
        index = tx.append(
            _act(ActKind.APPROVAL_DECIDED, verdict.by, decided, details, ("terms", terms)), at_unix_ms=now
        )
        decided = replace(decided, decided_index=index, seal=self._writer.home.key.sign(_SEAL + terms))
        return _change(tx, before, decided)

    def _expire(self, tx: Transaction, approval_id: str, now: int) -> Approval:
        approval = _known(tx, approval_id)
        if not rules.is_overdue(approval, now_unix_ms=now):
            return approval
        index = tx.append(_act(ActKind.APPROVAL_EXPIRED, ACTOR, approval, {}), at_unix_ms=now)
        return _change(tx, approval, replace(rules.expire(approval), ended_index=index))

    def _revoke(self, tx: Transaction, approval_id: str, by: str, now: int) -> Approval:
        approval = _known(tx, approval_id)
        revoked = rules.revoke(approval, by=by)
        index = tx.append(_act(ActKind.APPROVAL_REVOKED, by, approval, {}), at_unix_ms=now)
        return _change(tx, approval, replace(revoked, ended_index=index, seal=b""))

    def _grant_for(self, source: Rows, question: Question, now: int) -> Approval | None:
        sql = f"{_SELECT}WHERE principal = ? AND tool = ? AND state = 'approved' AND valid_until_unix_ms > ?"
        rows = source.rows(f"{sql} ORDER BY valid_until_unix_ms DESC LIMIT ?",
                           (question.principal, question.tool, now, _CANDIDATES))  # fmt: skip
        fitting = (approval for approval in _parsed(rows) if rules.covers(approval, question, now_unix_ms=now))
        return next((approval for approval in fitting if self._is_sealed(approval)), None)

    def _check_asked(self, approval: Approval) -> None:
        """Somebody who swaps what is bound for what is shown would have a person sign for something else."""
        if approval.state is not ApprovalState.PENDING:
            return
        if not self._signed(approval.seal, _ASKED + approval.request_bytes(), entry=approval.requested_index):
            detail = f"The request {approval.approval_id[:40]} is not what was asked."
            raise StateError(detail, "Run: palyra journal verify")

    def _is_sealed(self, approval: Approval) -> bool:
        entry = approval.decided_index
        if entry is not None and self._signed(approval.seal, _SEAL + approval.terms_bytes(), entry=entry):
            return True
        log.warning("approval %.40s is not what was decided: run palyra journal verify", approval.approval_id)
        return False

    def _signed(self, seal: bytes, data: bytes, *, entry: int) -> bool:
        """By the journal's key of that entry, so that a handover leaves what was asked and decided before it sound; in
        the commit after one the entry is the new key's."""
        keys = self._writer.home.keys
        for verifier in {keys.of_entry(entry), keys.newest}:
            with contextlib.suppress(TrustError, ValueError):
                verifier.key.verify(seal, data)
                return True
        return False


def _find(source: Rows, approval_id: str) -> Approval | None:
    found = _parsed(source.rows(_SELECT + "WHERE approval_id = ?", (approval_id,)))
    return found[0] if found else None


def _known(tx: Transaction, approval_id: str) -> Approval:
    approval = _find(tx, approval_id)
    if approval is None:
        raise _unknown(approval_id)
    return approval


def _unknown(approval_id: str) -> Rejected:
    return Rejected(Reason.BAD_ARGUMENTS, f"There is no approval {approval_id[:40]!r}.", "palyra approvals list")


def _parsed(rows: Sequence[tuple[Any, ...]]) -> tuple[Approval, ...]:
    """A row that is none of ours (somebody edited it) counts as absent here; `palyra journal verify` names it."""
    found = []
    for row in rows:
        try:
            found.append(parse_row(row))
        except ValueError:
            log.warning("approval %.40s cannot be read: run palyra journal verify", row[0])
    return tuple(found)


def _change(tx: Transaction, before: Approval, after: Approval) -> Approval:
    """Compare-and-set: only from the state it was judged in."""
    values = tuple(getattr(after, name) for name in _CHANGING)
    ids = (after.decided_index, after.ended_index, after.seal, after.approval_id, before.state)
    if tx.execute(_UPDATE, (*values, *ids)).rowcount != 1:
        raise Rejected(Reason.BUSY, "The approval was changed by somebody else.", "Look at it again.")
    return after


def _act(
    kind: ActKind, actor: str, approval: Approval, details: dict[str, Json], commit: tuple[str, bytes] | None = None
) -> EntryDraft:
    said = {"approval_id": approval.approval_id, "principal": approval.principal, "tool": approval.tool, **details}
    salted = () if commit is None else (commit_value(*commit, os.urandom(SALT_BYTES)),)
    said["run"] = approval.run_id
    subject = f"approval/{approval.approval_id}"
    return Act(kind=kind, actor=actor, subject=subject, details=said, commitments=salted).draft()
