"""Every granted name has its own address inside, and an address says which name was meant."""

from __future__ import annotations

from ipaddress import ip_address

from palyra.egress.hosts import parse_pattern
from palyra.egress.names import NameTable
from palyra.model.face import NetFace
from palyra.model.net import EgressMode, NetGrant

FACE = NetFace(names=(("a.test", "198.18.0.16"), ("b.test", "198.18.0.17")), spare=("198.18.0.18", "198.18.0.19"))


def table(*patterns: str) -> NameTable:
    return NameTable(NetGrant(EgressMode.STRICT, tuple(parse_pattern(text) for text in patterns)), FACE)


def test_an_exact_name_has_its_address_from_the_start_and_back():
    names = table("a.test", "b.test:22")
    assert names.address_of("A.Test.") == ip_address("198.18.0.16")
    assert names.name_of(ip_address("198.18.0.17")) == "b.test"
    assert names.name_of(ip_address("::ffff:198.18.0.17")) == "b.test"


def test_a_name_below_a_suffix_gets_a_spare_address_once_and_keeps_it():
    names = table("a.test", "*.c.test")
    assert names.name_of(ip_address("198.18.0.18")) is None
    assert names.address_of("x.c.test") == names.address_of("X.C.test") == ip_address("198.18.0.18")
    assert names.address_of("y.c.test") == ip_address("198.18.0.19")
    assert names.name_of(ip_address("198.18.0.19")) == "y.c.test"


def test_when_no_spare_address_is_left_a_name_has_none():
    names = table("*.c.test")
    assert [str(names.address_of(f"{at}.c.test")) for at in "xyz"] == ["198.18.0.18", "198.18.0.19", "None"]
    assert names.grants("z.c.test")


def test_names_that_are_not_granted_take_no_address():
    names = table("*.c.test", "10.0.0.0/8")
    for host in ("evil.test", "c.test", "xc.test", "10.0.0.1", "10.1", "a b.c.test", "", "a\0.c.test"):
        assert names.address_of(host) is None
    assert names.address_of("x.c.test") == ip_address("198.18.0.18")
    assert names.name_of(ip_address("2001:db8::1")) is None
