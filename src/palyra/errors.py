"""The bedrock: why something was refused, and the few exceptions that say so.

Rules: a refusal is one exception, `Rejected`, and carries a stable `Reason`, one plain sentence and, where the
caller can do something, a hint that names the exact flag, setting or policy. Reasons are codes: nothing in
Palyra, and nothing in a client, needs to read them out of text.

Not here: how a refusal is shown (cli/render), what status or exit code it becomes (model/outcome).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Every code an outcome may carry. The sentence beside it is the first line of its page in the reference."""

    MALFORMED = "MALFORMED"
    TOO_LARGE = "TOO_LARGE"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    BAD_ARGUMENTS = "BAD_ARGUMENTS"
    POLICY_DENIED = "POLICY_DENIED"
    POLICY_ERROR = "POLICY_ERROR"
    NOT_APPROVED = "NOT_APPROVED"
    APPROVAL_TIMEOUT = "APPROVAL_TIMEOUT"
    BUDGET_SPENT = "BUDGET_SPENT"
    EXECUTABLE_DENIED = "EXECUTABLE_DENIED"
    INTERPRETER_DENIED = "INTERPRETER_DENIED"
    OUTSIDE_WORKSPACE = "OUTSIDE_WORKSPACE"
    EGRESS_DENIED = "EGRESS_DENIED"
    UNENFORCEABLE = "UNENFORCEABLE"
    SKILL_NOT_ACTIVE = "SKILL_NOT_ACTIVE"
    SKILL_TAMPERED = "SKILL_TAMPERED"
    CAPABILITY_DENIED = "CAPABILITY_DENIED"
    JOURNAL_DOWN = "JOURNAL_DOWN"
    SPAWN_FAILED = "SPAWN_FAILED"
    TIMEOUT = "TIMEOUT"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    OUT_OF_FUEL = "OUT_OF_FUEL"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    CPU_LIMIT = "CPU_LIMIT"
    TRAPPED = "TRAPPED"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"
    BUSY = "BUSY"
    CALL_ID_REUSED = "CALL_ID_REUSED"
    INTERNAL = "INTERNAL"


class PalyraError(Exception):
    """Root of everything Palyra raises on purpose. A hint stands below the sentence in a traceback too."""

    hint: str | None = None

    def advise(self, hint: str | None) -> None:
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Whole through a process pool: what a class is made with is more than its text."""
        return self.__class__.__new__, (self.__class__, *self.args), self.__dict__


class Rejected(PalyraError):
    """A call was refused before anything ran. Caught in exactly one place, `engine/walk.py`."""

    def __init__(
        self, reason: Reason, detail: str, hint: str | None = None, *, fields: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.advise(hint)
        self.fields = fields
        """(path, sentence) for each argument that was wrong."""


class Unenforceable(Rejected):
    """No backend on this host gives what the call needs; `missing` names the guarantees."""

    def __init__(self, missing: tuple[str, ...], detail: str, hint: str | None = None) -> None:
        super().__init__(Reason.UNENFORCEABLE, detail, hint)
        self.missing = missing


class DuplicateCall(PalyraError):
    """This call id is in the journal already: the caller gets the first outcome, nothing runs twice."""


class ConfigError(PalyraError):
    """The configuration cannot be used. The sentence names file, line and key."""

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advise(hint)


class TrustError(PalyraError):
    """A key, signature or signed statement does not hold."""


class StateError(PalyraError):
    """The state folder or its database cannot be used; nothing runs until it can."""

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advise(hint)
