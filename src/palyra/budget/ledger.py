"""What a run may still spend: calls that run, attempts that were refused, and what its programs use.

Rules: a ledger is a value, spending returns the next one; denials and malformed calls spend attempts, so that a model
cannot loop against a wall for ever; a run without attempts left runs nothing more, whatever its calls. What a call may
use at most is reserved before it runs and settled after, so that calls side by side never spend the same twice. A
refusal says which budget, how much of it was used, and its limit.

Not here: keeping ledgers exact between processes (the journal's store spends inside its transaction).
"""

from __future__ import annotations

from dataclasses import replace

from palyra.errors import Reason, Rejected
from palyra.model.budget import NOTHING, RESOURCES, UNLIMITED, Allowance, Spending
from palyra.model.limits import Limits
from palyra.values import dataclass

_WORDS = {
    "wall_us": "s of wall time",
    "cpu_us": "s of processor time",
    "output_bytes": "bytes of output",
    "egress_bytes": "bytes of network traffic",
    "fuel": "units of WASM fuel",
}
_FLAGS = {name: f"--{name.removesuffix('_us').replace('_', '-')}" for name in _WORDS}
"""Of `palyra runs extend`."""
_RUN_HINT = "Start a new run. An operator can extend this one: palyra runs extend RUN_ID {flag} N."
_DAY_HINT = "The budget resets tomorrow (UTC). An operator can raise it in [budget.principal_day]."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Of one run."""

    calls_used: int = 0
    calls_max: int
    attempts_used: int = 0
    attempts_max: int
    used: Spending = NOTHING
    reserved: Spending = NOTHING
    """By running calls."""
    most: Allowance = UNLIMITED

    def __post_init__(self) -> None:
        if min(self.calls_used, self.calls_max, self.attempts_used, self.attempts_max) < 0:
            raise ValueError("a budget is never negative")

    @property
    def calls_left(self) -> int:
        return max(0, self.calls_max - self.calls_used)

    @property
    def attempts_left(self) -> int:
        return max(0, self.attempts_max - self.attempts_used)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Calls used and their maximum, attempts used and their maximum."""
        return self.calls_used, self.calls_max, self.attempts_used, self.attempts_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What all runs of a principal that began on one day have used of what they share."""

    principal: str
    calls_used: int = 0
    calls_max: int | None = None
    used: Spending = NOTHING
    reserved: Spending = NOTHING
    most: Allowance = UNLIMITED


def spend_call(ledger: Ledger) -> Ledger:
    """One call more. Raises Rejected(BUDGET_SPENT) when there is none, or when the attempts are gone."""
    check_call(ledger)
    return replace(ledger, calls_used=ledger.calls_used + 1)


def check_call(ledger: Ledger) -> None:
    check_attempts(ledger)
    if not ledger.calls_left:
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"The run has used {ledger.calls_used} of its {ledger.calls_max} calls.",
            "Start a new run. An operator can raise max_calls_per_run in [tool_call], or extend this one: "
            "palyra runs extend RUN_ID --calls N.",
        )


def spend_attempt(ledger: Ledger) -> Ledger:
    """One refused or malformed call more. Raises Rejected(BUDGET_SPENT) when the attempts are gone."""
    check_attempts(ledger)
    return replace(ledger, attempts_used=ledger.attempts_used + 1)


def check_attempts(ledger: Ledger) -> None:
    if not ledger.attempts_left:
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"The run has used {ledger.attempts_used} of its {ledger.attempts_max} refused attempts.",
            "Start a new run. An operator can raise max_attempts_per_run, or extend this one: palyra runs extend "
            "RUN_ID --attempts N; palyra journal tail --status refused shows why calls were refused.",
        )


def check_share_calls(share: Share) -> None:
    if share.calls_max is not None and share.calls_used >= share.calls_max:
        raise Rejected(
            Reason.BUDGET_SPENT,
            f"{share.principal} has used {share.calls_used} of its {share.calls_max} calls of the day.",
            _DAY_HINT,
        )


def check_reserve(account: Ledger | Share, wanted: Spending) -> None:
    """Whether `wanted` can be held back; Rejected(BUDGET_SPENT) names the resource that is short."""
    for name, most, want in zip(RESOURCES, account.most.amounts, wanted.amounts, strict=True):
        left = _left(account, name)
        if left is None or 0 < left >= want:
            continue
        used, held = getattr(account.used, name), getattr(account.reserved, name)
        who, hint = "The run", _RUN_HINT.format(flag=_FLAGS[name])
        if isinstance(account, Share):
            who, hint = account.principal, _DAY_HINT
        under_way = f", and calls under way hold {_amount(name, held)}" if held else ""
        of = f"{_amount(name, used)} of its {_amount(name, most or 0)} {_WORDS[name]}"
        raise Rejected(Reason.BUDGET_SPENT, f"{who} has used {of}{under_way}.", hint)


def _amount(name: str, count: int) -> str:
    """Time in seconds, as `palyra runs extend` takes it."""
    return f"{count / 1_000_000:.15g}" if name.endswith("_us") else str(count)


def narrow(account: Ledger | Share, limits: Limits) -> Limits:
    """A call's limits within what is left: its program is ended before it can spend more."""
    if account.most.is_unlimited:
        return limits
    wall_us, cpu_us, output = (_left(account, name) for name in ("wall_us", "cpu_us", "output_bytes"))
    given = limits.as_json()
    for name, left in (("wall_ms", wall_us), ("cpu_ms", cpu_us)):
        if left is not None:
            given[name] = min(given[name], max(1, left // 1000))
    if output is not None:
        given["output_bytes"] = min(given["output_bytes"], max(0, output))
    return Limits(**given)


def narrow_fuel(account: Ledger | Share, fuel: int) -> int:
    left = _left(account, "fuel")
    return fuel if left is None else min(fuel, max(1, left))


def _left(account: Ledger | Share, name: str) -> int | None:
    most: int | None = getattr(account.most, name)
    if most is None:
        return None
    left: int = most - getattr(account.used, name) - getattr(account.reserved, name)
    return left


def extend(ledger: Ledger, *, calls: int = 0, attempts: int = 0, more: Spending = NOTHING) -> Ledger:
    """An operator's gift: added to the limits there are; what has no limit needs none."""
    amounts = {"calls": calls, "attempts": attempts, **more.as_json()}
    if min(amounts.values()) < 0 or not any(amounts.values()):
        raise Rejected(Reason.BAD_ARGUMENTS, "Give the amounts to extend by, as whole numbers above 0.")
    for name in RESOURCES:
        if amounts[name] and getattr(ledger.most, name) is None:
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"The run has no limit for {name}, so there is nothing to extend.",
                f"Leave out {_FLAGS[name]}; limits of a run are set in [budget.run].",
            )
    widened = {
        name: None if most is None else most + amounts[name]
        for name, most in zip(RESOURCES, ledger.most.amounts, strict=True)
    }
    return replace(
        ledger,
        calls_max=ledger.calls_max + calls,
        attempts_max=ledger.attempts_max + attempts,
        most=Allowance(**widened),
    )
