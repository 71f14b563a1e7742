"""A run narrows what the configuration gives, and never widens it."""

from __future__ import annotations

import pytest

from palyra.config.schema import parse_config
from palyra.errors import Rejected
from palyra.model.budget import Allowance
from palyra.testing import fake_run

CONFIG = parse_config({"budget": {"run": {"wall_ms": 10, "fuel": 7}}})


def test_budgets_asked_for_only_narrow():
    run = fake_run(CONFIG, calls_max=5, most=Allowance(wall_us=10**9, cpu_us=3, fuel=2))
    assert (run.calls_max, run.most) == (5, Allowance(wall_us=10_000, cpu_us=3, fuel=2))
    assert fake_run(CONFIG, calls_max=10**6).calls_max == 200
    assert fake_run(CONFIG).most == Allowance(wall_us=10_000, fuel=7)


def test_a_run_has_at_least_one_call_and_no_negative_budget():
    with pytest.raises(Rejected):
        fake_run(CONFIG, calls_max=0)
    with pytest.raises(ValueError, match="never negative"):
        Allowance(fuel=-1)


def test_a_workspace_that_is_too_long_is_called_that():
    with pytest.raises(Rejected) as refused:
        fake_run(CONFIG, workspace="/w" * 3000)
    assert (refused.value.detail, refused.value.hint) == (
        "The workspace is too long: 6000 characters.",
        "Give a workspace of at most 4096 characters.",
    )
