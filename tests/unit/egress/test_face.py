"""What a sandbox shows inside for its grant: the program's own loopback stays its own."""

from __future__ import annotations

import pytest

from palyra.egress.face import MAX_LISTENERS, SPARE, face_of
from palyra.egress.hosts import parse_pattern
from palyra.errors import Unenforceable
from palyra.model.face import ANY_V4, ANY_V6, SYNTHETIC, NetFace
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant


def face(*patterns: str) -> NetFace | None:
    return face_of(NetGrant(EgressMode.STRICT, tuple(parse_pattern(text) for text in patterns)))


def test_without_granted_hosts_nothing_listens() -> None:
    assert face_of(NO_NETWORK) is None
    assert face_of(NetGrant(EgressMode.PREFLIGHT, (parse_pattern("a.test"),))) is None


def test_each_name_has_an_address_of_its_own_and_the_usual_ports_are_open_on_any() -> None:
    assert face("b.test", "a.test") == NetFace(
        names=(("a.test", "198.18.0.16"), ("b.test", "198.18.0.17")),
        local=(SYNTHETIC,),
        tcp=((ANY_V4, 80), (ANY_V4, 443)),
    )


def test_a_high_port_is_open_on_the_names_own_address_only() -> None:
    made = face("a.test:8080", "b.test:9000")
    assert made is not None
    assert made.tcp == (("198.18.0.16", 8080), ("198.18.0.17", 9000))


def test_a_granted_address_is_local_inside_and_open_at_its_port() -> None:
    assert face("10.1.2.3:5432", "[2001:db8::7]:443", "127.0.0.1:8000") == NetFace(
        local=("10.1.2.3/32", "2001:db8::7/128"),
        tcp=(("10.1.2.3", 5432), ("127.0.0.1", 8000), ("2001:db8::7", 443)),
    )


def test_a_wide_range_takes_its_port_on_every_address() -> None:
    made = face("10.0.0.0/8:5432", "10.1.1.1:5432", "[2001:db8::/64]:22")
    assert made is not None
    assert made.tcp == ((ANY_V4, 5432), (ANY_V6, 22))
    assert made.local == ("10.0.0.0/8", "10.1.1.1/32", "2001:db8::/64")


def test_names_below_a_suffix_have_spare_addresses() -> None:
    made = face("*.example.test:8443", "a.test")
    assert made is not None
    assert len(set(made.spare)) == SPARE
    assert "198.18.0.16" not in made.spare
    assert {address for address, port in made.tcp if port == 8443} == set(made.spare)


@pytest.mark.parametrize("pattern", ["127.0.0.1:53", "127.0.0.1:1023", "127.0.0.0/8:53"])
def test_our_own_listeners_ports_cannot_be_granted(pattern: str) -> None:
    with pytest.raises(Unenforceable, match="belongs to Palyra"):
        face(pattern)


def test_a_names_port_53_does_not_collide_with_our_name_server() -> None:
    made = face("dns.test:53")
    assert made is not None
    assert made.tcp == (("198.18.0.16", 53),)


def test_too_many_listeners_are_refused_with_a_hint() -> None:
    with pytest.raises(Unenforceable, match="listeners"):
        face(*(f"a{at}.test:8080" for at in range(MAX_LISTENERS + 1)))
