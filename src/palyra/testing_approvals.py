"""The fake that stands for people: says yes, no, nothing, or lets a test decide while a call waits."""

from __future__ import annotations

from dataclasses import field, replace

from palyra.model.approval import Approval, ApprovalState, Question, Scope
from palyra.values import dataclass

FAR_UNIX_MS = 1 << 52


@dataclass
class FakeApprover:
    """Answers every question with `state`; `after_looks` looks later with `then`, as an operator elsewhere would."""

    approval_id: str = "01HF7YAT00000000000000APPR"
    state: ApprovalState = ApprovalState.DENIED
    then: ApprovalState | None = None
    after_looks: int = 1
    note: str = ""
    asked: list[Question] = field(default_factory=list)
    confirmed: list[tuple[str, bool]] = field(default_factory=list)
    looks: int = 0

    async def ask(self, question: Question) -> Approval:
        self.asked.append(question)
        return self._approval(self.state)

    async def look(self, approval_id: str) -> Approval:
        self.looks += 1
        decided = self.then is not None and self.looks >= self.after_looks
        return self._approval(self.then if decided and self.then is not None else self.state)

    async def confirm(self, approval_id: str, *, by: str, approved: bool) -> Approval:
        self.confirmed.append((by, approved))
        state = ApprovalState.APPROVED if approved else ApprovalState.DENIED
        return replace(self._approval(state), decided_by=by, self_approved=1)

    def _approval(self, state: ApprovalState) -> Approval:
        question = self.asked[-1]
        decided = state in (ApprovalState.APPROVED, ApprovalState.DENIED)
        asked = Approval.of(
            question, approval_id=self.approval_id, shown=b"", asked_unix_ms=0, expires_unix_ms=FAR_UNIX_MS
        )
        return replace(
            asked,
            state=state,
            decided_by="user:operator" if decided else None,
            note=self.note,
            scope=Scope.ONCE if state is ApprovalState.APPROVED else None,
            valid_until_unix_ms=FAR_UNIX_MS if state is ApprovalState.APPROVED else None,
        )
