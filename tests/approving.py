"""Approvals to test with: questions that differ only where a test wants them to, and a store with its own clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from palyra.approvals.rules import Verdict, bind
from palyra.approvals.store.desk import ApprovalStore, Times
from palyra.budget.store import BudgetStore
from palyra.journal.store import JournalStore
from palyra.model.approval import Approval, Permission, Question
from palyra.model.record import Opening
from tests.journaling import NOW, opening, run_spec, ulid
from tests.stores import open_writer

RUN = ulid(77)
PLAN: dict[str, Any] = {
    "program": "/usr/bin/git",
    "program_sha256": "4" * 64,
    "argv": ["git", "fetch", "origin"],
    "cwd": "/workspace",
    "env": [["PATH", "/usr/bin"]],
    "net": {"mode": "strict", "allowed_hosts": ["example.org"]},
}
OPERATOR = "user:operator"
YES = Verdict(approved=True, by=OPERATOR)
NO = Verdict(approved=False, by=OPERATOR, note="not today")


def question(
    *, principal: str = "agent:demo", run_id: str = RUN, policy: str = "0" * 64, asked_by: str = "guard.60", **plan: Any
) -> Question:
    """`plan` replaces parts of PLAN."""
    whole = PLAN | plan
    bound = bind(
        principal=principal,
        tool="palyra.process.run",
        input_sha256=str(whole["argv"]),
        plan=whole,
        policy_sha256=policy,
        policies=[asked_by],
    )
    return Question(
        principal=principal,
        run_id=run_id,
        call_id=ulid(),
        tool="palyra.process.run",
        program=whole["argv"][0],
        binding=bound.binding,
        frame=bound.frame,
        likeness=bound.likeness,
        argv=tuple(whole["argv"]),
        shown=b'{"argv":["git","fetch","origin"]}',
    )


class Desk:
    """A home's approvals and journal, with hands on the clock."""

    def __init__(self, home: Path, *, max_pending: int = 100) -> None:
        self.now = NOW
        self.writer = open_writer(home)
        self.announced: list[Approval] = []
        self.store = ApprovalStore(
            self.writer,
            times=Times(request_ms=60_000, grant_ms=30_000, max_pending=max_pending),
            new_id=ulid,
            now_unix_ms=lambda: self.now,
            announce=self.announced.append,
        )
        self.journal = JournalStore(self.writer, BudgetStore(), self.store)

    async def granted(self, asked: Question, verdict: Verdict = YES) -> Approval:
        request = await self.store.ask(asked)
        return await self.store.decide(request.approval_id, verdict)

    async def run(self, asked: Question, approval: Approval) -> str:
        """Opens a call on the approval; returns the call's id."""
        call_id = ulid()
        await self.journal.open_call(self.opening(call_id, asked, approval))
        return call_id

    def opening(self, call_id: str, asked: Question, approval: Approval) -> Opening:
        plain = opening(call_id, run_spec(asked.run_id, principal=asked.principal))
        decision = {**plain.entry.predicate["decision"], "effect": "ask", "approval_id": approval.approval_id}
        return replace(
            plain,
            opened_unix_ms=self.now,
            entry=replace(plain.entry, predicate={**plain.entry.predicate, "decision": decision}),
            permission=Permission(approval_id=approval.approval_id, question=asked),
        )

    def acts(self) -> list[str]:
        from palyra.journal.entry import parse_entry

        views = [parse_entry(entry.body) for entry in self.journal.tail(1000)]
        return [view.predicate["act"] for view in views if "act" in view.predicate]
