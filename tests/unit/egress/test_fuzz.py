"""The fuzz targets hold for their seeds and for a few hundred inputs; `make fuzz` runs them for longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import SEEDS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_for_its_seeds_and_what_is_near_them(name):
    for seed in SEEDS[name]:
        TARGETS[name](seed)
    near = st.tuples(st.sampled_from(SEEDS[name]), st.integers(0, 200), st.binary(max_size=6))

    @given(near, st.binary(max_size=60))
    def holds(mutated, anything):
        seed, at, piece = mutated
        TARGETS[name](seed[:at] + piece + seed[at + len(piece) :])
        TARGETS[name](anything)

    holds()
