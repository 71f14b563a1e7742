"""A run spends calls and attempts, never more than it has, and is told which of them is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.budget.ledger import Ledger, spend_attempt, spend_call
from palyra.errors import Reason, Rejected


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
        "Start a new run, or raise max_calls_per_run.",
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
