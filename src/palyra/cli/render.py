"""How outcomes look on a terminal and which exit code they become. Pure: values in, text and numbers out.

Tool output is hostile: what is shown to people outside a transparent `palyra run` goes through `visible`, so that no
escape sequence, bidi override or control character of a tool reaches the operator's terminal.
"""

from __future__ import annotations

from typing import Any

from palyra.errors import Reason
from palyra.model.outcome import Outcome, Status
from palyra.model.visible import visible, visible_line
from palyra.policy.decide import MISSING_EXECUTABLE

__all__ = ["call_exit_code", "refusal_lines", "run_exit_code", "visible", "visible_line"]
REFUSED, NOT_FOUND, OWN_ERROR, TIMED_OUT, PENDING, INTERRUPTED_BY_USER = 126, 127, 125, 124, 75, 130
OVER_QUOTA = 137


def refusal_lines(outcome: Outcome) -> tuple[str, ...]:
    """The lines every refusal and failure writes to stderr: what happened, what to do, and the command by which an
    operator allows it, where one does. For a program's own exit only a hint. That the policy files need repair is said
    after every call."""
    pending = outcome.status is Status.PENDING_APPROVAL
    code = outcome.status if pending else outcome.reason
    lines = [f"palyra: {code}: {visible_line(outcome.message or '')}"] if code is not None else []
    lines += [f"hint: {visible_line(outcome.hint)}"] if outcome.hint else []
    lines += [f"allow: {visible_line(outcome.operator_hint)}"] if outcome.operator_hint else []
    lines += [f"palyra: {visible_line(outcome.policy_stale)}"] if outcome.policy_stale else []
    return tuple(lines)


def change_lines(outcome: Outcome) -> tuple[str, ...]:
    """What `palyra run --changes` says to people, on stderr: one file a line."""
    changes: Any = outcome.output.get("changes")
    if changes is None:
        return ()
    kinds = ("created", "modified", "deleted")
    lines = [f"palyra: {kind} {visible_line(path)}" for kind in kinds for path in changes[kind]]
    more = sum(changes["counts"].values()) - len(lines)
    lines += [f"palyra: and {more} more"] if more else []
    if not changes["complete"]:
        lines.append("palyra: the workspace is too large to scan completely: there may be more")
    return tuple(lines)


def unwritten_hint(outcome: Outcome) -> str:
    """For a call whose output is not where it was to be."""
    became = "The program ran to its end" if outcome.status is Status.COMPLETED else "The call was cancelled"
    return f"{became}; palyra journal show {outcome.call_id} has its record. Send the output somewhere else."


def run_exit_code(outcome: Outcome) -> int:
    """`palyra run` is transparent: the child's own code, and the table of the contract for the rest."""
    match outcome.status:
        case Status.COMPLETED:
            signal, code = outcome.output.get("signal"), outcome.output.get("exit_code")
            if signal is None and code is None:
                return OWN_ERROR  # how it ended is not known: that is no success
            return 128 + signal if signal else int(code or 0)
        case Status.REFUSED:
            return NOT_FOUND if _not_found(outcome) else REFUSED
        case Status.PENDING_APPROVAL:
            return PENDING
        case Status.TIMEOUT:
            return TIMED_OUT
        case Status.QUOTA_EXCEEDED:
            return OVER_QUOTA
        case Status.CANCELLED:
            return INTERRUPTED_BY_USER
        case _:
            return OWN_ERROR


def call_exit_code(outcome: Outcome) -> int:
    if outcome.success:
        return 0
    if outcome.status is Status.REFUSED:
        return REFUSED
    if outcome.status is Status.PENDING_APPROVAL:
        return PENDING
    return OWN_ERROR if outcome.reason is Reason.INTERNAL else 1


def _not_found(outcome: Outcome) -> bool:
    """Allowed, but not there: told apart by the determining policy, never by text."""
    policies = outcome.attestation.get("decision", {}).get("policies", ())
    return list(policies[:1]) == [MISSING_EXECUTABLE]
