"""A host that the overlap of two lists covers is covered by both, and one that both cover is covered by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.hosts import parse_grant, parse_pattern
from palyra.egress.overlap import overlap
from palyra.egress.rules import judge_host
from palyra.model.net import EgressMode, NetGrant

PATTERNS = st.sampled_from(
    [
        *("a.example", "b.example", "x.a.example", "*.a.example", "*.x.a.example", "*.example.com", "a.example:443"),
        *("a.example:8443", "*.a.example:80", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.3:22", "fd00::/8"),
        *("fd00::1", "192.0.2.1"),
    ]
)
HOSTS = st.sampled_from(
    ["a.example", "b.example", "x.a.example", "y.x.a.example", "example.com", "10.1.2.3", "10.9.9.9", "fd00::1"]
)


def covers(texts, host, port):
    return judge_host(NetGrant(EgressMode.STRICT, tuple(texts)), host, port).allowed


@given(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=4), HOSTS, st.sampled_from([22, 80, 443, 8443]))
def test_what_both_cover_and_nothing_else(one, other, host, port):
    mine, theirs = [parse_pattern(text) for text in one], [parse_pattern(text) for text in other]
    both = covers(mine, host, port) and covers(theirs, host, port)
    assert covers(overlap(mine, theirs), host, port) == both


@pytest.mark.parametrize("configured", [[], ["a.example"]])
def test_an_empty_list_leaves_nothing(configured):
    assert overlap([parse_pattern(text) for text in configured], []) == ()


@pytest.mark.parametrize("own", ["x.a.example:9042", "x.a.example:9042 raw", "*.a.example:9042"])
@pytest.mark.parametrize("configured", ["x.a.example:9042", "x.a.example:9042 raw"])
def test_raw_is_the_configurations_to_give_and_no_runs_own(configured, own):
    both = overlap([parse_grant(configured)], [parse_grant(own)])
    assert [str(one) for one in both] == [configured]
