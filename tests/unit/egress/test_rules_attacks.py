"""Answers of name servers that lead where no grant leads, and addresses that hide another."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from palyra.egress.hosts import AddressClass, classify_address, parse_pattern
from palyra.egress.rules import judge_address, judge_answer, judge_host
from palyra.model.net import EgressMode, NetGrant


def grant(*patterns: str) -> NetGrant:
    return NetGrant(EgressMode.STRICT, tuple(parse_pattern(text) for text in patterns))


def test_one_private_address_spoils_a_mixed_answer():
    granted = grant("a.test")
    assert judge_answer(granted, ["1.1.1.1", "1.0.0.1"], 443, name="a.test").allowed
    assert not judge_answer(granted, ["1.1.1.1", "127.0.0.1"], 443, name="a.test").allowed
    assert not judge_answer(granted, [], 443, name="a.test").allowed


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "::ffff:169.254.169.254"])
def test_a_metadata_address_is_never_reached_by_a_name_nor_by_a_wide_range(address):
    granted = grant("a.test", "0.0.0.0/0", "::/0")
    assert not judge_address(granted, address, 80, name="a.test").allowed
    assert not judge_address(granted, address, 80, name=None).allowed


def test_a_metadata_address_granted_as_itself_is_reached_as_itself():
    granted = grant("169.254.169.254", "a.test")
    assert judge_host(granted, "169.254.169.254", 80).allowed
    assert not judge_address(granted, "169.254.169.254", 80, name="a.test").allowed


def test_a_literal_leads_to_itself_only():
    granted = grant("1.1.1.1")
    assert judge_address(granted, "1.1.1.1", 443, name="1.1.1.1").allowed
    assert not judge_address(granted, "1.0.0.1", 443, name="1.1.1.1").allowed


def test_a_granted_range_does_not_lend_its_port():
    granted = grant("a.test:5432", "10.0.0.0/8")
    assert not judge_address(granted, "10.0.0.1", 5432, name="a.test").allowed
    assert judge_address(grant("a.test:5432", "10.0.0.0/8"), "8.8.8.8", 5432, name="a.test").allowed


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "a..b", "", "good.test\0.evil.test", "good.test/x"])
def test_what_is_no_host_is_allowed_by_no_grant(host):
    assert not judge_host(grant("good.test", "127.0.0.1", "*.evil.test"), host, 80).allowed


@pytest.mark.parametrize(
    "address",
    """0.1.2.3 100.127.255.255 192.0.0.8 192.0.2.1 192.88.99.1 198.19.255.255 198.51.100.9 203.0.113.9 233.252.0.1
    240.0.0.1 ::2 ::ffff:0:7f00:1 64:ff9b::808:808 64:ff9b:1::1 100::1 2001:0:1::1 2001:2::1 2001:10::1 2001:20::1
    2002:808:808::1 3fff::1 5f00::1 fc00::1 fec0::1 fe80::1 ff0e::1 2a00:1450::5efe:a00:1 2a00:1450::200:5efe:a00:1
    ::ffff:192.168.0.1 168.63.129.16""".split(),
)
def test_no_special_address_is_public(address):
    assert classify_address(ip_address(address)) is not AddressClass.PUBLIC


@pytest.mark.parametrize("address", "1.1.1.1 100.128.0.1 172.32.0.1 ::ffff:8.8.8.8 2a00:1450:4001::1 2600::".split())
def test_ordinary_addresses_are_public(address):
    assert classify_address(address) is AddressClass.PUBLIC
