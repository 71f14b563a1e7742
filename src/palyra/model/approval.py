"""A person's yes or no to one plan: the question that is put, the approval that is kept, the permission a call uses.

Rules: an approval is known by what it binds (`binding`, or `frame` and a pattern), never by a tool's name alone. What
was asked and what was decided each have one spelling in bytes, `request_bytes` and `terms_bytes`: the journal commits
to them and the installation signs the terms, so a row that was edited grants nothing and is found.

Not here: what binds what, who may decide (approvals/rules), rows and entries (approvals/store).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from palyra.canon import Json, canonical_strict
from palyra.values import dataclass, names_of


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody decided in time."""
    REVOKED = "revoked"
    """A yes that lets nothing through any more (it has a scope), or a no that was taken back (it has none)."""


class Scope(StrEnum):
    """How far a yes goes."""

    ONCE = "once"
    """One call."""
    RUN = "run"
    """Every such call of the run that asked."""
    UNTIL = "until"
    """Every such call of the principal that asked, until a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a call puts before a person, and what a grant must cover to let it through."""

    principal: str
    run_id: str
    call_id: str
    tool: str
    program: str
    """For people and for counting: the program's name, or the tool's own."""
    binding: str
    """Digest of everything: principal, tool, input, the whole plan, the bundle, the policies that ask."""
    frame: str
    """Digest of the same without the program's arguments, for patterns; empty where there is none."""
    likeness: str
    """Digest of who asks for which input: the same thing, whatever the policies of the day."""
    argv: tuple[str, ...]
    shown: bytes
    """Canonical JSON of what the person sees; secrets redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    approval_id: str
    principal: str
    run_id: str
    call_id: str
    """Of the first call that asked."""
    tool: str
    program: str
    binding: str
    frame: str
    likeness: str
    shown: bytes
    """Digest of what was shown."""
    asked_unix_ms: int
    expires_unix_ms: int
    state: ApprovalState = ApprovalState.PENDING
    asks: int = 1
    """Calls that asked for it; for people, nothing rests on it."""
    told: int = 0
    """A caller was told that nobody decided in time: its next call asks again."""
    decided_unix_ms: int | None = None
    decided_by: str | None = None
    self_approved: int = 0
    note: str = ""
    """The reason the operator gave."""
    scope: Scope | None = None
    pattern: str = ""
    """JSON list of words; empty: the binding alone."""
    valid_until_unix_ms: int | None = None
    uses: int = 0
    requested_index: int = 0
    decided_index: int | None = None
    ended_index: int | None = None
    """The entry of its expiry or revocation."""
    seal: bytes = b""
    """The installation's signature over the terms."""

    @classmethod
    def of(
        cls, question: Question, *, approval_id: str, shown: bytes, asked_unix_ms: int, expires_unix_ms: int
    ) -> Approval:
        """A request as it begins: nobody has decided."""
        return cls(
            approval_id=approval_id,
            principal=question.principal,
            run_id=question.run_id,
            call_id=question.call_id,
            tool=question.tool,
            program=question.program,
            binding=question.binding,
            frame=question.frame,
            likeness=question.likeness,
            shown=shown,
            asked_unix_ms=asked_unix_ms,
            expires_unix_ms=expires_unix_ms,
        )

    def request_bytes(self) -> bytes:
        """What was asked: never changes."""
        names = (
            *("approval_id", "principal", "run_id", "call_id", "tool", "program", "binding", "frame", "likeness"),
            *("asked_unix_ms", "expires_unix_ms"),
        )
        value: dict[str, Json] = {name: getattr(self, name) for name in names}
        return canonical_strict(value | {"shown": self.shown.hex()})

    def terms_bytes(self) -> bytes:
        """What was decided, together with what it was decided about: never changes once it is there."""
        names = (
            *("approval_id", "principal", "run_id", "tool", "binding", "frame", "decided_unix_ms", "decided_by"),
            *("self_approved", "note", "pattern", "valid_until_unix_ms"),
        )
        value: dict[str, Json] = {name: getattr(self, name) for name in names}
        scope = self.scope.value if self.scope is not None else None
        return canonical_strict(value | {"approved": scope is not None, "scope": scope})

    def as_row(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in COLUMNS)

    def summary(self) -> dict[str, Json]:
        """For lists and machines; what was asked for is in `shown`."""
        return {
            "approval_id": self.approval_id,
            "state": self.state.value,
            "principal": self.principal,
            "tool": self.tool,
            "program": self.program,
            "run_id": self.run_id,
            "call_id": self.call_id,
            "asked_at_unix_ms": self.asked_unix_ms,
            "expires_at_unix_ms": self.expires_unix_ms,
            "asks": self.asks,
            "decided_at_unix_ms": self.decided_unix_ms,
            "decided_by": self.decided_by,
            "self_approved": bool(self.self_approved),
            "reason": self.note or None,
            "scope": self.scope.value if self.scope is not None else None,
            "pattern": self.pattern or None,
            "valid_until_unix_ms": self.valid_until_unix_ms,
            "uses": self.uses,
        }


COLUMNS: tuple[str, ...] = names_of(Approval)
"""Of the table, in this order."""


def parse_row(row: tuple[Any, ...]) -> Approval:
    """ValueError for a row that Palyra did not write."""
    value = dict(zip(COLUMNS, row, strict=True))
    value["state"] = ApprovalState(value["state"])
    value["scope"] = None if value["scope"] is None else Scope(value["scope"])
    return Approval(**value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """An approval that a call means to use; consumed in the transaction of its intent, or the call does not run."""

    approval_id: str
    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Fatigue:
    """How often the same thing was put before a person, and what became of it."""

    asked: int = 0
    approved: int = 0
    denied: int = 0
    expired: int = 0

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("asked", "approved", "denied", "expired")}
