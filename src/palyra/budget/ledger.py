"""What a run may still spend: calls that run, and attempts that were refused.

Rules: a ledger is a value, spending returns the next one; denials and malformed calls spend attempts, so that a model
cannot loop against a wall for ever; a run without attempts left runs nothing more, whatever its calls. A refusal
says which budget, how much of it was used, and its limit.

Not here: keeping ledgers exact between processes (the journal's store spends inside its transaction).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from palyra.errors import Reason, Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    calls_used: int = 0
    calls_max: int
    attempts_used: int = 0
    attempts_max: int

    def __post_init__(self) -> None:
        if min(self.calls_used, self.calls_max, self.attempts_used, self.attempts_max) < 0:
            raise ValueError("a budget is never negative")

    @property
    def calls_left(self) -> int:
        return max(0, self.calls_max - self.calls_used)

    @property
    def attempts_left(self) -> int:
        return max(0, self.attempts_max - self.attempts_used)


def spend_call(ledger: Ledger) -> Ledger:
    """One call more. Raises Rejected(BUDGET_SPENT) when there is none, or when the attempts are gone."""
    check_attempts(ledger)
    if not ledger.calls_left:
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"The run has used {ledger.calls_used} of its {ledger.calls_max} calls.",
            "Start a new run, or raise max_calls_per_run.",
        )
    return replace(ledger, calls_used=ledger.calls_used + 1)


def spend_attempt(ledger: Ledger) -> Ledger:
    """One refused or malformed call more. Raises Rejected(BUDGET_SPENT) when the attempts are gone."""
    check_attempts(ledger)
    return replace(ledger, attempts_used=ledger.attempts_used + 1)


def check_attempts(ledger: Ledger) -> None:
    if not ledger.attempts_left:
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"The run has used {ledger.attempts_used} of its {ledger.attempts_max} refused attempts.",
            "Start a new run, or raise max_attempts_per_run; palyra policy explain tells why calls were refused.",
        )
