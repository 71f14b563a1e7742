"""What looks like a request to any server must look like one here, in any spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.sniff import MAX_LINE, Kind, sniff


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n", b"get / http/1.1\n", b"\r\n\r\nGET / HTTP/1.1\r\n", b"\n \tGET / HTTP/1.0",
        b"FOO\t/\tHTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n", b"GET http://evil.test/ HTTP/1.1\r\n",
        b"GET /\xff HTTP/1.1\r\n", b"GET /\x01 HTTP/1.1\r\n", b"GET\r/ HTTP/1.1\r\n", b"GET\x0b/\x0cHTTP/1.1\r\n",
        b"x" * MAX_LINE, b"\r\n" * MAX_LINE,
    ],
)  # fmt: skip
def test_what_a_lenient_server_reads_as_a_request_is_one(data):
    assert sniff(data) is Kind.HTTP


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n", b"PING\r\n", b"EHLO me\r\n", b"*1\r\n", b"CONNECT {}\r\n", b"\0\0\0\x08",
        b"\x16\x02", b"GET\0/ HTTP/1.1\r\n",
        b"<stream>", b"0033git-upload-pack /x\0", b"{\"a\":1}", b"\xff\xfd",
    ],
)  # fmt: skip
def test_other_protocols_are_neither(data):
    assert sniff(data) is Kind.OTHER


@pytest.mark.parametrize(
    "data", [b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n", b"PROXY x", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"]
)
def test_a_header_that_says_who_the_client_is_is_known(data):
    assert sniff(data) is Kind.PROXY_HEADER


def test_tls_is_known_by_two_bytes():
    assert [sniff(data) for data in (b"", b"\x16", b"\x16\x03")] == [Kind.UNDECIDED, Kind.UNDECIDED, Kind.TLS]


@given(st.text(alphabet="GE \r\n\0\x16\x03", max_size=8))
def test_more_bytes_never_change_a_decision(text):
    data = text.replace("E", "HTTP/").encode()
    kinds = [sniff(data[:at]) for at in range(len(data) + 1)]
    decided = [kind for kind in kinds if kind is not Kind.UNDECIDED]
    assert len(set(decided)) <= 1
    assert kinds == [Kind.UNDECIDED] * (len(kinds) - len(decided)) + decided
