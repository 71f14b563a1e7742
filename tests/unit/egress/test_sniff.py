"""What looks like a request to any server must look like one here, in any spelling."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.sniff import MAX_FIELD, MAX_FIELDS, MAX_LINE, OPEN, Kind, Sniffer, sniff


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n", b"get / http/1.1\n", b"\r\n\r\nGET / HTTP/1.1\r\n", b"\n \tGET / HTTP/1.0",
        b"FOO\t/\tHTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n", b"GET http://evil.test/ HTTP/1.1\r\n",
        b"GET /\xff HTTP/1.1\r\n", b"GET /\x01 HTTP/1.1\r\n", b"GET\r/ HTTP/1.1\r\n", b"GET\x0b/\x0cHTTP/1.1\r\n",
        b"GET /\0 HTTP/1.1\r\n", b"G\0ET / HTTP/1.1\r\n", b"(GET) / HTTP/1.1\r\n", b"\x1cGET / HTTP/1.1\r\n",
        b"GET / RTSP/1.0\r\n", b"SOURCE / ICE/1.1\r\n", b"x" * MAX_LINE, b"\r\n" * MAX_LINE,
    ],
)  # fmt: skip
def test_what_a_lenient_server_reads_as_a_request_is_one(data):
    assert sniff(data) is Kind.HTTP


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\r\nHost: evil\r\n", b"GET / X\r\nhost:evil", b"GET /\nA: b\nHOST : evil\n", b"\1\2 / X\r\nHost: evil",
        b"GET / X\r\njunk\r\n\r\nHost: evil",
        b"GET / X\r\nA: b\rHost: evil", b"GET / X\r\n\r\n", b"GET /\nA: b\n\n", b"GET / X\r\nA: b\r\r",
        b"GET\xa0/\r\nHost: evil", b"\xffGET / X\r\nHost: evil", b"\x01" * MAX_LINE + b" / X\r\nHost: evil",
        b"GET / X\r\n" + b"A: b\r\n" * (MAX_FIELDS - 1) + b"Host: evil",
    ],
)  # fmt: skip
def test_a_request_that_names_no_version_is_known_by_the_head_behind_it(data):
    """Each was taken for a request by the servers of Python, Node or Java's own libraries."""
    sniffer = Sniffer()
    assert [sniffer.feed(data[at : at + 1]) for at in range(len(data))][-1] is sniff(data) is Kind.HTTP


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n", b"PING\r\n", b"*1\r\n", b"CONNECT\nhost:x\n\n\0",
        b"a b\n" + b"c:" + b"d" * MAX_FIELD,
        b"<1>a b: c\n" + b"<1>a b: c\n" * MAX_FIELDS,
    ],
)  # fmt: skip
def test_other_protocols_are_neither(data):
    assert sniff(data) is Kind.OTHER


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x08", b"<stream>", b"0033git-upload-pack /x\0", b"{\"a\":1}", b"\xff\xfd", b"\x16\x20",
        b"EHLO me\r\n", b"CONNECT {}\r\n", b"\1" * MAX_LINE, b"SET a b\r\nGET a\r\n", b"NICK a\r\nUSER a 0 * x\r\n",
        b"a.load 1 1700000000\nb.load 2 1700000000\n", b"SSH-2.0-OpenSSH_9.2 Debian\r\n\0\0\x04\n", b"a b\nc\n\n",
    ],
)  # fmt: skip
def test_what_may_still_become_a_request_to_somebody_is_watched_on(data):
    assert sniff(data) is Kind.LOOSE


@pytest.mark.parametrize(
    "data", [b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n", b"PROXY x", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"]
)
def test_a_header_that_says_who_the_client_is_is_known(data):
    assert sniff(data) is Kind.PROXY_HEADER


def test_tls_is_known_by_two_bytes():
    assert [sniff(data) for data in (b"", b"\x16", b"\x16\x03")] == [Kind.UNDECIDED, Kind.UNDECIDED, Kind.TLS]


@pytest.mark.parametrize("record", [b"\x16\x02\x03", b"\x16\x04\x01", b"\x16\0\0", b"\x15\x03\x01", b"\x15\x04\x01"])
def test_records_that_only_some_servers_take_are_tls_too(record):
    """Go's and BoringSSL's read on to the hello behind an alert, Go's whatever version a record says."""
    assert sniff(record) is Kind.TLS


@given(st.text(alphabet="GEa: \r\n\0\x16\x03", max_size=10))
def test_more_bytes_never_change_a_decision_however_they_are_cut(text):
    data = text.replace("E", "HTTP/").encode()
    kinds = [sniff(data[:at]) for at in range(len(data) + 1)]
    decided = [kind for kind in kinds if kind not in OPEN]
    assert len(set(decided)) <= 1
    assert all(kind in OPEN for kind in kinds[: len(kinds) - len(decided)])
    sniffer = Sniffer()
    assert [sniffer.feed(b""), *(sniffer.feed(data[at : at + 1]) for at in range(len(data)))] == kinds


@pytest.mark.slow
@pytest.mark.parametrize("unit", [b"GET /h", b"A", b"\0R", b" "])
def test_a_line_that_comes_byte_by_byte_is_not_read_from_its_beginning_for_each(unit):
    """Sixteen thousand packets of one byte kept everybody's loop busy for seconds."""

    def cost(length: int) -> float:
        sniffer, before = Sniffer(), time.process_time()
        for at in range(length):
            sniffer.feed(unit[at % len(unit) :][:1])
        assert sniffer.kind in OPEN
        return time.process_time() - before

    assert min(cost(MAX_LINE - 1) for _ in range(3)) < 24 * min(cost(MAX_LINE // 8) for _ in range(3))
