"""Hosts have one spelling, and no spelling of a private address passes for a public one."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.hosts import AddressClass, classify_address, is_address, parse_grant, parse_host, parse_pattern
from palyra.errors import Reason, Rejected
from palyra.model.net import HostKind, HostPattern


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("1.2.3.4", "1.2.3.4"),
        ("[::1]", "::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("localhost", "localhost"),
        ("_dmarc.example.com", "_dmarc.example.com"),
    ],
)
def test_a_host_has_one_spelling(text, host):
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.01", "1.2.3.4.5", "a.0x7f", "foo.123",
        "", ".", "a..b", "-a.com", "a-.com", "a b.com", "a" * 64 + ".com", "a." * 127 + "com", "fe80::1%eth0", "[::1",
        "exa\u2024mple.com/..", "ex\0ample.com", "*.example.com", "a/b", "a@b",
    ],
)  # fmt: skip
def test_other_spellings_and_what_is_no_host_are_refused(text):
    with pytest.raises(Rejected) as caught:
        parse_host(text)
    assert caught.value.reason is Reason.BAD_ARGUMENTS


def test_fullwidth_digits_cannot_smuggle_an_address():
    """IDNA maps １ to 1: what comes out is an address, which a name must never become."""
    for text in ("１２７.０.０.１", "127。0。0。1"):
        with pytest.raises(Rejected):
            parse_host(text)


@given(st.text(max_size=40))
def test_any_text_is_a_canonical_host_or_a_refusal(text):
    try:
        host = parse_host(text)
    except Rejected:
        return
    assert parse_host(host) == host
    assert host == host.lower()


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("example.com", HostPattern(HostKind.EXACT, "example.com")),
        ("Example.com:8443", HostPattern(HostKind.EXACT, "example.com", 8443)),
        ("*.example.com", HostPattern(HostKind.SUFFIX, "example.com")),
        (".example.com:22", HostPattern(HostKind.SUFFIX, "example.com", 22)),
        ("127.0.0.1:5432", HostPattern(HostKind.NETWORK, "127.0.0.1/32", 5432)),
        ("10.0.0.0/8", HostPattern(HostKind.NETWORK, "10.0.0.0/8")),
        ("[::1]:80", HostPattern(HostKind.NETWORK, "::1/128", 80)),
        ("fd00::/8", HostPattern(HostKind.NETWORK, "fd00::/8")),
    ],
)
def test_patterns_are_read_as_written(text, pattern):
    assert parse_pattern(text) == pattern
    assert parse_pattern(str(pattern)) == pattern


@pytest.mark.parametrize("text", ["*", "*.com", "a*.com", "*.1.2.3.4", "10.0.0.1/8", "a:0", "a:65536", "a:x", "a:٣"])
def test_patterns_that_say_too_much_or_nothing_are_refused(text):
    with pytest.raises(Rejected):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", AddressClass.PUBLIC),
        ("2606:4700:4700::1111", AddressClass.PUBLIC),
        ("127.8.9.10", AddressClass.LOOPBACK),
        ("::1", AddressClass.LOOPBACK),
        ("::ffff:127.0.0.1", AddressClass.LOOPBACK),
        ("::127.0.0.1", AddressClass.LOOPBACK),
        ("::ffff:169.254.169.254", AddressClass.METADATA),
        ("169.254.169.254", AddressClass.METADATA),
        ("169.254.1.1", AddressClass.LINK_LOCAL),
        ("10.255.255.255", AddressClass.PRIVATE),
        ("172.31.0.1", AddressClass.PRIVATE),
        ("192.168.1.1", AddressClass.PRIVATE),
        ("fd12::1", AddressClass.PRIVATE),
        ("100.64.0.1", AddressClass.RESERVED),
        ("192.0.0.192", AddressClass.RESERVED),
        ("198.18.0.1", AddressClass.RESERVED),
        ("0.0.0.0", AddressClass.RESERVED),
        ("255.255.255.255", AddressClass.RESERVED),
        ("64:ff9b::7f00:1", AddressClass.RESERVED),
        ("2002:7f00:1::", AddressClass.RESERVED),
        ("2001::1", AddressClass.RESERVED),
        ("2001:db8::1", AddressClass.RESERVED),
        ("4000::1", AddressClass.RESERVED),
        ("224.0.0.1", AddressClass.MULTICAST),
        ("ff02::1", AddressClass.MULTICAST),
    ],
)
def test_every_special_range_is_known(address, kind):
    assert classify_address(ipaddress.ip_address(address)) is kind


@given(st.ip_addresses())
def test_nothing_python_calls_private_is_public_here(address):
    if classify_address(address) is AddressClass.PUBLIC:
        assert not address.is_private
        assert not address.is_loopback
        assert is_address(str(address))


def test_a_refused_host_is_shown_so_that_no_terminal_obeys_it():
    with pytest.raises(Rejected) as refused:
        parse_host("a\x1b[31mb c")
    assert refused.value.detail == "'a?[31mb c' is not a host name."


def test_a_page_is_no_host():
    with pytest.raises(Rejected) as refused:
        parse_pattern("http://x/y")
    assert refused.value.detail == "'http://x/y' is a URL; a grant names a host."
    assert refused.value.hint == "Write x instead."


def test_brackets_are_for_addresses_with_colons_alone():
    assert parse_host("[::ffff:10.1.2.3]") == parse_host("::ffff:10.1.2.3") == "10.1.2.3"
    assert parse_host("[2001:db8::1]") == "2001:db8::1"
    with pytest.raises(Rejected):
        parse_host("[10.1.2.3]")


def test_a_name_too_long_is_refused_before_anybody_encodes_it():
    with pytest.raises(Rejected) as refused:
        parse_host("ü" * 300)
    assert "is too long for a host name" in refused.value.detail


@pytest.mark.parametrize("text", ["db.test:9042", "10.0.0.5:22", "[fd00::5]:22"])
def test_raw_is_granted_to_one_host_or_address_and_port(text):
    pattern = parse_grant(f"{text} raw")
    assert (pattern.raw, str(pattern)) == (True, f"{text} raw")
    assert parse_grant(str(pattern)) == pattern
    assert not parse_grant(text).raw


@pytest.mark.parametrize(
    "text",
    ["db.test raw", "*.db.test:1 raw", "10.0.0.0/24:22 raw", "db.test:1 RAW", "db.test:1  raw", "db.test:1 raw raw",
     " raw", "db.test:0 raw"],
)  # fmt: skip
def test_raw_is_granted_to_nothing_wider(text):
    with pytest.raises(Rejected):
        parse_grant(text)


def test_only_an_operators_grant_is_read_as_raw():
    with pytest.raises(Rejected):
        parse_pattern("db.test:9042 raw")


@pytest.mark.parametrize(
    ("url", "hint"),
    [("https://a.test/x", "Write a.test instead."), ("http://u:p@a.test:81?x", "Write a.test:81 instead."),
     ("http://", "Write a host as"), ("http://a b/", "Write a host as"), ("a://b://c", "Write a host as")],
)  # fmt: skip
def test_of_a_url_its_host_is_proposed(url, hint):
    with pytest.raises(Rejected) as refused:
        parse_pattern(url)
    assert str(refused.value.hint).startswith(hint)
