"""Approvals on the database: asked, decided, expired, revoked and used, each in one transaction with its entry.

Rules: a request is decided once, under the writer's lock, whoever races; a grant is used in the transaction of the
call's intent, so of two repeats only one can use a `once`; request and terms are signed with the installation's key,
the one checked before anybody looks or decides, the other at every use (seals). Arguments enter entries only as
commitments.

Not here: what binds and who may decide (approvals/rules), the statements (rows), how it looks (cli/approvals).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import orjson

from palyra.approvals import rules
from palyra.approvals.store import rows, seals
from palyra.approvals.store.rows import LAST
from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.journal.acts import Act, ActKind
from palyra.journal.commitments import SALT_BYTES, commit_value
from palyra.model.approval import Approval, ApprovalState, Fatigue, Permission, Question
from palyra.model.record import EntryDraft
from palyra.state.database import Rows
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

log = logging.getLogger("palyra.approvals")

ACTOR = "palyra"


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
        approval = rows.find_known(self._writer, approval_id)
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
        approval = rows.find(tx, permission.approval_id)
        sound = approval is not None and seals.is_as_decided(self._writer.home, approval)
        if approval is None or not sound or not rules.covers(approval, permission.question, now_unix_ms=at_unix_ms):
            raise Rejected(
                Reason.NOT_APPROVED,
                "The approval was used by another call, was revoked, or has expired.",
                "Repeat the call to ask again.",
            )
        tx.execute("UPDATE approvals SET uses = uses + 1 WHERE approval_id = ?", (approval.approval_id,))

    # ── for operators ──

    def find(self, approval_id: str) -> Approval | None:
        return rows.find(self._writer, approval_id)

    def list(self, *, states: Sequence[ApprovalState], before: str = LAST, count: int = 50) -> tuple[Approval, ...]:
        """The newest first."""
        return rows.list_newest(self._writer, states, before=before, count=count)

    def grants(self) -> tuple[Approval, ...]:
        """Those that still let something through."""
        return rows.list_grants(self._writer, now_unix_ms=self._now())

    async def view(self, approval_id: str, *, by: str) -> Approval:
        """Somebody looks at all of it: that is an entry too."""
        approval = await self.look(approval_id)
        seals.check_asked(self._writer.home, approval)
        await self._writer.commit(
            lambda tx: tx.append(_act(ActKind.APPROVAL_VIEWED, by, approval, {}), at_unix_ms=self._now())
        )
        return approval

    async def revoke(self, approval_id: str, *, by: str, logins: Collection[str] = ()) -> Approval:
        """A grant lets nothing through any more; a no stands no longer in the way of asking again."""
        return (await self._writer.commit(lambda tx: self._revoke(tx, approval_id, by, logins)))[0]

    def shown(self, approval: Approval) -> Mapping[str, Json]:
        """What the person sees of the call; empty when it is no longer what was asked."""
        found = self._writer.rows("SELECT data FROM blobs WHERE sha256 = ?", (approval.shown,))
        data = found[0][0] if found else b""
        if hashlib.sha256(data).digest() != approval.shown:
            return {}
        value: Mapping[str, Json] = orjson.loads(data)
        return value

    def earlier(self, approval: Approval) -> Approval | None:
        """The last yes to this principal for this program."""
        return rows.find_earlier(self._writer, approval)

    def fatigue(self, approval: Approval) -> dict[str, Fatigue]:
        """For the very same call, and for anything of this program that this principal asked for."""
        return rows.count_fatigue(self._writer, approval)

    async def expire_overdue(self) -> int:
        """End every request that nobody decided in time; returns how many there were."""
        overdue = rows.list_overdue(self._writer, now_unix_ms=self._now())
        ended = await asyncio.gather(*(self.look(approval_id) for approval_id in overdue), return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):  # it is overdue all the same, and must keep nobody from starting
                log.warning("an expired request could not be closed: %s", error)
        return len(overdue)

    # ── transactions ──

    def _ask(self, tx: Transaction, question: Question, now: int) -> Approval:
        granted = self._grant_for(tx, question, now)
        if granted is not None:
            return granted
        last = rows.find_last(tx, question.binding)
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
            case ApprovalState.DENIED if rules.holds_denied(last, now_unix_ms=now):
                return last
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
        approval = replace(approval, requested_index=index, seal=seals.seal_request(self._writer.home, approval))
        rows.insert(tx, approval)
        return approval

    def _check_room(self, tx: Transaction, principal: str) -> None:
        waiting = rows.count_pending(tx, principal)
        if waiting >= self._times.max_pending:
            raise Rejected(
                Reason.BUSY,
                f"{principal} has {waiting} request{'s' if waiting > 1 else ''} waiting for a person already.",
                "Wait until some are decided, or raise max_pending in [approvals].",
            )

    def _decide(self, tx: Transaction, approval_id: str, verdict: rules.Verdict, now: int) -> Approval:
        before = rows.find_known(tx, approval_id)
        seals.check_asked(self._writer.home, before)
        decided = rules.decide(before, verdict, now_unix_ms=now, grant_ms=self._times.grant_ms)
        details: dict[str, Json] = {
            "decision": decided.state.value,
            "logins": list(verdict.logins),
            "self_approved": bool(decided.self_approved),
            "scope": decided.scope.value if decided.scope else None,
            "has_pattern": bool(decided.pattern),
            "valid_until_unix_ms": decided.valid_until_unix_ms,
        }
        terms = ("terms", decided.terms_bytes())
        index = tx.append(_act(ActKind.APPROVAL_DECIDED, verdict.by, decided, details, terms), at_unix_ms=now)
        decided = replace(decided, decided_index=index, seal=seals.seal_terms(self._writer.home, decided))
        return rows.change(tx, before, decided)

    def _expire(self, tx: Transaction, approval_id: str, now: int) -> Approval:
        approval = rows.find_known(tx, approval_id)
        if not rules.is_overdue(approval, now_unix_ms=now):
            return approval
        seals.check_asked(self._writer.home, approval)  # an entry that contradicts the ones before it stays for ever
        index = tx.append(_act(ActKind.APPROVAL_EXPIRED, ACTOR, approval, {}), at_unix_ms=now)
        return rows.change(tx, approval, replace(rules.expire(approval), ended_index=index))

    def _revoke(self, tx: Transaction, approval_id: str, by: str, logins: Collection[str]) -> Approval:
        approval, now = rows.find_known(tx, approval_id), self._now()
        revoked = rules.revoke(approval, by=by, logins=logins, now_unix_ms=now)
        seals.check_decided(self._writer.home, approval)
        index = tx.append(_act(ActKind.APPROVAL_REVOKED, by, approval, {}), at_unix_ms=now)
        return rows.change(tx, approval, replace(revoked, ended_index=index, seal=b""))

    def _grant_for(self, source: Rows, question: Question, now: int) -> Approval | None:
        found = rows.find_grants(source, question, now_unix_ms=now)
        fitting = (approval for approval in found if rules.covers(approval, question, now_unix_ms=now))
        return next((approval for approval in fitting if seals.is_as_decided(self._writer.home, approval)), None)


def _act(
    kind: ActKind, actor: str, approval: Approval, details: dict[str, Json], commit: tuple[str, bytes] | None = None
) -> EntryDraft:
    said = {"approval_id": approval.approval_id, "principal": approval.principal, "tool": approval.tool, **details}
    salted = () if commit is None else (commit_value(*commit, os.urandom(SALT_BYTES)),)
    said["run"] = approval.run_id
    subject = f"approval/{approval.approval_id}"
    return Act(kind=kind, actor=actor, subject=subject, details=said, commitments=salted).draft()
