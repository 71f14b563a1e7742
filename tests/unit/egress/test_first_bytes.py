"""What a port lets a connection begin with, and what is refused because its beginning has gone out unseen."""

from __future__ import annotations

import pytest

from palyra.egress.first_bytes import JUDGED_PORTS, FirstBytes
from palyra.egress.grammar import Malformed
from palyra.egress.sniff import Kind

TLS = b"\x16\x03\x01"
REQUEST = b"GET / HTTP/1.1\r\n"
OTHER_PORT = 5432


def kind_of(data: bytes, port: int) -> Kind:
    return FirstBytes().look(bytearray(data), port)


@pytest.mark.parametrize("port", [*JUDGED_PORTS, OTHER_PORT])
def test_tls_and_requests_are_known_on_every_port(port: int) -> None:
    assert (kind_of(TLS, port), kind_of(REQUEST, port)) == (Kind.TLS, Kind.HTTP)


def test_a_line_that_only_may_become_a_request_is_nothing_on_a_judged_port() -> None:
    assert kind_of(b"\x01 / x\r\n", OTHER_PORT) is Kind.LOOSE
    assert [kind_of(b"\x01 / x\r\n", port) for port in JUDGED_PORTS] == [Kind.OTHER] * 2


def test_what_is_neither_passes_on_other_ports_alone() -> None:
    first = FirstBytes()
    first.check(Kind.OTHER, OTHER_PORT)
    for port in JUDGED_PORTS:
        with pytest.raises(Malformed, match=f"on port {port} only TLS and HTTP"):
            first.check(Kind.OTHER, port)


@pytest.mark.parametrize("port", [*JUDGED_PORTS, OTHER_PORT])
def test_a_proxy_header_never_passes(port: int) -> None:
    with pytest.raises(Malformed, match="PROXY protocol"):
        FirstBytes().check(Kind.PROXY_HEADER, port)


@pytest.mark.parametrize("kind", [Kind.TLS, Kind.HTTP])
def test_a_request_whose_beginning_was_passed_on_is_refused(kind: Kind) -> None:
    first, inbox = FirstBytes(), bytearray(b"GE")
    first.look(inbox, OTHER_PORT)
    first.check(kind, OTHER_PORT)
    assert (first.take(inbox), inbox) == (b"GE", bytearray())
    with pytest.raises(Malformed, match="too slowly") as refused:
        first.check(kind, OTHER_PORT)
    assert refused.value.status == 408


def test_what_was_passed_on_is_still_looked_at_as_the_beginning() -> None:
    first, inbox = FirstBytes(), bytearray(b"GET / HT")
    assert first.look(inbox, OTHER_PORT) is Kind.UNDECIDED
    first.take(inbox)
    inbox += b"TP/1.1\r\n"
    assert first.look(inbox, OTHER_PORT) is Kind.HTTP


def test_an_empty_inbox_passes_nothing_on() -> None:
    first = FirstBytes()
    assert first.take(bytearray()) == b""
    first.check(Kind.HTTP, OTHER_PORT)
