"""A run spends calls and attempts, never more than it has, and is told which of them is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.budget.ledger import (
    Ledger,
    Share,
    check_reserve,
    check_share_calls,
    extend,
    narrow,
    spend_attempt,
    spend_call,
)
from palyra.errors import Reason, Rejected
from palyra.model.budget import Allowance, Spending
from palyra.model.limits import Limits


def test_spending_returns_the_next_ledger():
    ledger = Ledger(calls_max=2, attempts_max=3)
    assert spend_call(ledger) == Ledger(calls_used=1, calls_max=2, attempts_max=3)
    assert spend_attempt(ledger) == Ledger(calls_max=2, attempts_used=1, attempts_max=3)
    assert ledger == Ledger(calls_max=2, attempts_max=3)


def test_the_last_call_is_followed_by_a_refusal_that_says_which_budget():
    with pytest.raises(Rejected) as caught:
        spend_call(Ledger(calls_used=200, calls_max=200, attempts_max=9))
    assert (caught.value.reason, caught.value.detail, caught.value.hint) == (
        Reason.BUDGET_SPENT,
        "The run has used 200 of its 200 calls.",
        "Start a new run. An operator can raise max_calls_per_run in [tool_call], or extend this one: "
        "palyra runs extend RUN_ID --calls N.",
    )


@pytest.mark.parametrize("spend", [spend_call, spend_attempt])
def test_a_run_without_attempts_left_makes_no_call_more(spend):
    with pytest.raises(Rejected) as caught:
        spend(Ledger(calls_max=200, attempts_used=50, attempts_max=50))
    assert caught.value.reason is Reason.BUDGET_SPENT
    assert caught.value.detail == "The run has used 50 of its 50 refused attempts."
    assert "max_attempts_per_run" in (caught.value.hint or "")


def test_refusals_go_on_when_the_calls_are_gone():
    assert spend_attempt(Ledger(calls_used=1, calls_max=1, attempts_max=1)).attempts_left == 0


def test_a_budget_that_was_lowered_below_its_use_is_spent():
    with pytest.raises(Rejected):
        spend_call(Ledger(calls_used=5, calls_max=3, attempts_max=1))


def test_a_negative_budget_is_no_budget():
    with pytest.raises(ValueError, match="never negative"):
        Ledger(calls_max=-1, attempts_max=1)


@given(
    calls=st.integers(0, 20), attempts=st.integers(0, 20), moves=st.lists(st.sampled_from([spend_call, spend_attempt]))
)
def test_no_order_of_spending_exceeds_either_budget(calls, attempts, moves):
    ledger = Ledger(calls_max=calls, attempts_max=attempts)
    for move in moves:
        try:
            ledger = move(ledger)
        except Rejected:
            continue
    assert ledger.calls_used <= calls
    assert ledger.attempts_used <= attempts


LIMITED = Ledger(
    calls_max=9,
    attempts_max=9,
    used=Spending(wall_us=4_000_000, output_bytes=70),
    reserved=Spending(wall_us=1_000_000),
    most=Allowance(wall_us=10_000_000, output_bytes=100),
)


def test_what_is_left_can_be_reserved_and_not_a_bit_more():
    check_reserve(LIMITED, Spending(wall_us=5_000_000, output_bytes=30))
    with pytest.raises(Rejected) as caught:
        check_reserve(LIMITED, Spending(wall_us=5_000_001))
    assert (caught.value.reason, caught.value.detail) == (
        Reason.BUDGET_SPENT,
        "The run has used 4 of its 10 s of wall time, and calls under way hold 1.",
    )
    with pytest.raises(Rejected, match="has used 70 of its 100 bytes of output"):
        check_reserve(LIMITED, Spending(output_bytes=31))


def test_a_budget_that_is_gone_lets_nothing_through_that_needs_none_of_it():
    gone = replace(LIMITED, used=Spending(egress_bytes=6), most=Allowance(egress_bytes=5))
    with pytest.raises(Rejected, match="6 of its 5 bytes of network traffic"):
        check_reserve(gone, Spending())


def test_a_calls_limits_are_narrowed_to_what_is_left():
    limits = Limits()
    assert narrow(LIMITED, limits) == replace(limits, wall_ms=5000, output_bytes=30)
    assert narrow(Ledger(calls_max=1, attempts_max=1), limits) is limits


def test_a_principal_is_told_that_its_day_is_over():
    share = Share(principal="agent:demo", calls_used=5, calls_max=5, most=Allowance(cpu_us=1), used=Spending(cpu_us=2))
    with pytest.raises(Rejected, match="agent:demo has used 5 of its 5 calls of the day"):
        check_share_calls(share)
    with pytest.raises(Rejected, match="agent:demo has used 2e-06 of its 1e-06 s of processor time") as caught:
        check_reserve(share, Spending())
    assert "principal_day" in (caught.value.hint or "")


def test_an_extension_widens_limits_and_only_those_there_are():
    after = extend(LIMITED, calls=1, attempts=2, more=Spending(wall_us=5))
    assert (after.calls_max, after.attempts_max, after.most) == (
        10,
        11,
        Allowance(wall_us=10_000_005, output_bytes=100),
    )
    for gift in ({}, {"calls": -1}, {"more": Spending(fuel=1)}):
        with pytest.raises(Rejected):
            extend(LIMITED, **gift)
