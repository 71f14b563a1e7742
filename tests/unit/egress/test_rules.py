"""Grants: an empty list allows nothing, suffixes end at labels, names never reach private addresses."""

from __future__ import annotations

import ipaddress

import pytest

from palyra.egress.hosts import parse_pattern
from palyra.egress.rules import judge_address, judge_answer, judge_host
from palyra.model.net import EgressMode, NetGrant


def grant(*patterns: str) -> NetGrant:
    return NetGrant(EgressMode.STRICT, tuple(parse_pattern(p) for p in patterns))


@pytest.mark.parametrize(
    ("patterns", "host", "port", "allowed"),
    [
        ((), "example.com", 443, False),
        (("example.com",), "example.com", 443, True),
        (("example.com",), "example.com", 22, False),
        (("example.com",), "example.com", None, True),
        (("example.com:22",), "example.com", 443, False),
        (("example.com",), "www.example.com", 443, False),
        (("*.example.com",), "www.example.com", 443, True),
        (("*.example.com",), "a.b.example.com", 443, True),
        (("*.example.com",), "example.com", 443, False),
        (("*.example.com",), "evilexample.com", 443, False),
        (("*.example.com",), "example.com.evil.net", 443, False),
        (("10.0.0.0/8",), "10.1.2.3", 80, True),
        (("10.0.0.0/8",), "11.1.2.3", 80, False),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", 80, True),
        (("*.0.0.example.com",), "10.0.0.1", 80, False),
    ],
)
def test_what_a_grant_allows(patterns, host, port, allowed):
    assert judge_host(grant(*patterns), host, port).allowed is allowed


def test_without_restriction_everything_is_allowed_and_says_so():
    assert judge_host(NetGrant(EgressMode.NONE), "anything.example", 1).why == "egress is not restricted"


@pytest.mark.parametrize(
    ("patterns", "address", "name", "allowed"),
    [
        (("example.com",), "93.184.216.34", "example.com", True),
        (("example.com",), "127.0.0.1", "example.com", False),
        (("example.com",), "169.254.169.254", "example.com", False),
        (("example.com",), "::ffff:10.0.0.1", "example.com", False),
        (("example.com", "10.0.0.0/8"), "10.0.0.1", "example.com", True),
        (("example.com",), "93.184.216.34", None, False),
        (("93.184.216.34",), "93.184.216.34", None, True),
        (("example.com",), "93.184.216.34", "other.example", False),
    ],
)
def test_a_name_reaches_only_public_addresses_unless_the_range_is_granted(patterns, address, name, allowed):
    assert judge_address(grant(*patterns), ipaddress.ip_address(address), 443, name=name).allowed is allowed


def test_without_restriction_a_private_address_is_reached_by_name_and_by_number():
    open_grant = NetGrant(EgressMode.NONE)
    for name in ("intranet.test", None):
        assert judge_address(open_grant, "10.0.0.1", 80, name=name).allowed
        assert not judge_address(NetGrant(EgressMode.STRICT), "10.0.0.1", 80, name=name).allowed


def test_without_restriction_every_host_may_be_reached():
    verdict = judge_host(NetGrant(EgressMode.NONE), "anything at all", 1)
    assert (verdict.allowed, verdict.pattern, verdict.why) == (True, None, "egress is not restricted")


def test_a_refusal_says_which_pattern_would_allow_it_where_one_would():
    name = grant("a.test", "a.test:8080")
    judged = judge_answer(name, ["10.0.0.1", "1.1.1.1", "fd00::1"], 443, name="a.test")
    assert [str(one) for one in judged.needs] == ["10.0.0.1", "fd00::1"]
    assert [str(one) for one in judge_answer(name, ["10.0.0.1"], 8080, name="a.test").needs] == ["10.0.0.1:8080"]
    assert judge_answer(name, ["10.0.0.1", "169.254.169.254"], 443, name="a.test").needs == ()
    assert [str(one) for one in judge_host(name, "b.test", 22).needs] == ["b.test:22"]
    assert [str(one) for one in judge_host(name, "::1", 22).needs] == ["[::1]:22"]
    both = grant("a.test", *map(str, judged.needs))
    assert judge_answer(both, ["10.0.0.1", "1.1.1.1", "fd00::1"], 443, name="a.test").allowed
