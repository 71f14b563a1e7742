"""A call that asks for hosts gets those of its grant and no others."""

from __future__ import annotations

import pytest

from palyra.egress.asked import in_order, narrow
from palyra.egress.hosts import parse_grant, parse_pattern
from palyra.errors import Rejected
from palyra.model.net import EgressMode, NetGrant


def grant(*patterns: str) -> NetGrant:
    return NetGrant(EgressMode.STRICT, in_order(parse_pattern(text) for text in patterns))


def test_who_asks_for_nothing_keeps_everything() -> None:
    assert narrow(grant("a.test", "b.test:22"), ()) == grant("a.test", "b.test:22")


def test_names_that_are_not_asked_for_are_left_out_and_ranges_stay() -> None:
    given = grant("a.test", "b.test", "*.c.test:8080", "10.0.0.0/8:8080")
    assert narrow(given, ("B.test.", "x.c.test:8080")) == grant("b.test", "x.c.test:8080", "10.0.0.0/8:8080")


def test_asking_never_adds() -> None:
    assert narrow(grant("a.test"), ("evil.test", "a.test:22", "10.0.0.1")) == grant()


def test_asking_for_a_port_narrows_to_it() -> None:
    assert narrow(grant("a.test"), ("a.test:443",)) == grant("a.test:443")


def test_patterns_with_and_without_a_port_have_an_order() -> None:
    """Comparing None with a number would fail the call inside Palyra."""
    assert [str(one) for one in in_order((parse_pattern("a.test:8080"), parse_pattern("a.test")))] == [
        "a.test",
        "a.test:8080",
    ]


def test_an_open_network_stays_open() -> None:
    assert narrow(NetGrant(EgressMode.NONE), ("a.test",)) == NetGrant(EgressMode.NONE)


def test_a_host_that_is_granted_raw_stays_so_when_it_is_asked_for_and_is_not_made_so() -> None:
    raw = NetGrant(EgressMode.STRICT, (parse_grant("a.test:9042 raw"),))
    assert narrow(raw, ("a.test:9042",)) == narrow(raw, ("a.test",)) == raw
    with pytest.raises(Rejected):
        narrow(grant("a.test:9042"), ("a.test:9042 raw",))
