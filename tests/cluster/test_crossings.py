"""A plan crosses as the same bytes each time it comes; what is large, or long ago, is not kept."""

from __future__ import annotations

from dataclasses import replace

from palyra.canon import canonical, sha256_hex
from palyra.cluster.crossings import Crossing, Crossings
from palyra.cluster.node import MOST_PLANS, PLAN_BYTES
from palyra.launch.values import to_json
from tests.cluster.machines import plan_of


def test_the_very_same_plan_has_the_very_same_bytes_and_an_equal_one_its_own(workspace):
    crossings, plan = Crossings(), plan_of(workspace, "true")
    made = crossings.make(plan, str(workspace))
    body = canonical(to_json(plan))
    assert made == Crossing(plan, str(workspace), body, sha256_hex(body))
    assert crossings.make(plan, str(workspace)) is made
    assert crossings.make(replace(plan), str(workspace)) is not made
    assert crossings.workspace_of(plan) == str(workspace)


def test_what_is_kept_is_bounded_in_number_and_size(workspace):
    crossings, plan = Crossings(), plan_of(workspace, "true")
    made = crossings.make(plan, str(workspace))
    large = replace(plan, stdin=bytes(PLAN_BYTES))
    assert crossings.make(large, str(workspace)) is not crossings.make(large, str(workspace))
    others = [replace(plan) for _ in range(MOST_PLANS)]
    for other in others:
        crossings.make(other, str(workspace))
    assert crossings.make(plan, str(workspace)) is not made
