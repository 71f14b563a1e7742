"""`make fuzz` looks longer at every property, also at those that name their number of examples."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st

from tests.conftest import SEARCH_TIMES, search_longer


def test_a_search_tries_more_of_a_property_that_names_its_number():
    tried: list[int] = []

    @hypothesis.settings(max_examples=3)
    @hypothesis.given(st.integers())
    def names_it(number: int) -> None:
        tried.append(number)

    @hypothesis.given(st.integers())
    def leaves_it_to_the_profile(number: int) -> None:
        tried.append(number)

    search_longer([names_it, names_it, len, None])  # a parametrised test is collected more than once
    names_it()
    assert len(tried) == 3 * SEARCH_TIMES
    tried.clear()
    search_longer([leaves_it_to_the_profile])
    leaves_it_to_the_profile()
    assert len(tried) == hypothesis.settings().max_examples


def test_a_search_of_one_method_reaches_it_through_its_instance():
    class Tests:
        tried = 0

        @hypothesis.settings(max_examples=2)
        @hypothesis.given(st.integers())
        def test_it(self, number: int) -> None:
            Tests.tried += 1

    search_longer([Tests().test_it])
    Tests().test_it()
    assert Tests.tried == 2 * SEARCH_TIMES
