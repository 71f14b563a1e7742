"""A pattern matches word by word, names its program, and never opens everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.approvals.patterns import check_pattern, matches
from palyra.errors import Rejected


@pytest.mark.parametrize(
    ("words", "argv", "fits"),
    [
        (("git", "fetch"), ("git", "fetch"), True),
        (("git", "f*"), ("git", "fetch"), True),
        (("git", "f*h"), ("git", "fetch origin"), False),
        (("git", "*"), ("git", "fetch", "origin"), False),
        (("git", "fetch", "*"), ("git", "fetch", "--upload-pack=x"), False),
        (("git", "fetch", "*.git"), ("git", "fetch", "-u.git"), False),
        (("git", "fetch", "--depth=*"), ("git", "fetch", "--depth=1"), True),
        (("git", "fetch", "**"), ("git", "fetch", "--depth=1"), True),
        (("git", "*"), ("git",), False),
        (("git", "fetch", "**"), ("git", "fetch"), True),
        (("git", "fetch", "**"), ("git", "fetch", "a", "b"), True),
        (("git", "fetch", "**"), ("git", "push"), False),
        (("git", "fetch", "**"), ("git",), False),
        (("git", "a\\*b"), ("git", "a*b"), True),
        (("git", "a\\*b"), ("git", "axb"), False),
        (("git", "*.md"), ("git", "x\n.md"), True),
        (("git", "*.md"), ("git", "x.md\nrm"), False),
        (("git", "a.c"), ("git", "abc"), False),
        (("git", "[ab]"), ("git", "a"), False),
    ],
)
def test_words_match_words(words, argv, fits):
    assert matches(words, argv) is fits


@pytest.mark.parametrize(
    "words",
    [(), ("gi*", "x"), ("bash", "x"), ("git", "**"), ("git", "*"), ("git", "*", "**"), ("git", "**", "x"),
     ("git", "*a*a*a*a"), ("git", "x" * 5000), ("git", *"x" * 200)],
)  # fmt: skip
def test_a_pattern_that_opens_too_much_or_costs_too_much_is_refused(words):
    with pytest.raises(Rejected):
        check_pattern(words, "git")


@given(st.lists(st.text(st.characters(exclude_characters="*\\", exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_words_without_stars_match_themselves_and_nothing_else(words):
    argv = tuple(words)
    assert matches(argv, argv)
    assert not matches(argv, (*argv, "x"))
    assert not matches(argv, (*argv[:-1], argv[-1] + "x"))
