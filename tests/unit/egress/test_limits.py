"""Limits are numbers within their ceilings."""

from __future__ import annotations

from dataclasses import fields

import pytest

from palyra.egress.limits import CAPS, EgressLimits
from palyra.errors import ConfigError


def test_every_limit_has_a_ceiling_and_a_default_below_it():
    assert {one.name for one in fields(EgressLimits)} == set(CAPS)
    EgressLimits()


@pytest.mark.parametrize("name", CAPS)
def test_a_number_outside_its_range_is_refused_by_name(name):
    low, high = CAPS[name]
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=name):
            EgressLimits(**{name: value})
