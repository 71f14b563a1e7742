"""HTTP heads: one reading or none."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.grammar import Malformed, Target
from palyra.egress.http import (
    MAX_FIELDS,
    MAX_HEAD,
    Request,
    Response,
    find_head,
    parse_request,
    parse_response,
    read_url,
    the_host,
    write_head,
    write_page,
)


def request(*lines: str, start: str = "GET / HTTP/1.1") -> Request:
    return parse_request(("\r\n".join([start, *lines]) + "\r\n\r\n").encode("latin-1"))


def response(*lines: str, start: str = "HTTP/1.1 200 OK", method: str = "GET") -> Response:
    return parse_response(("\r\n".join([start, *lines]) + "\r\n\r\n").encode("latin-1"), method=method)


def test_a_plain_head_is_read():
    assert request("Host: a.test", "Accept:  */* \t", "Content-Length: 5", "Connection: Keep-Alive, close") == Request(
        method="GET",
        target="/",
        minor=1,
        fields=(
            ("Host", "a.test"),
            ("Accept", "*/*"),
            ("Content-Length", "5"),
            ("Connection", "Keep-Alive, close"),
        ),
        body_bytes=5,
        options=frozenset({"keep-alive", "close"}),
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 0"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5, 5",),
        ("Content-Length: +5",),
        ("Content-Length: -1",),
        ("Content-Length: 0x5",),
        ("Content-Length: ",),
        ("Content-Length: 5 5",),
        ("Content-Length: 1_0",),
        ("Content-Length: ٣",),
        ("Content-Length: " + "9" * 19,),
        ("Content_Length: 5",),
        ("Transfer_Encoding: chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding:",),
        ("Transfer-Encoding : chunked",),
        (" Transfer-Encoding: chunked",),
        ("X: y", "\tTransfer-Encoding: chunked"),
        ("X: y\rTransfer-Encoding: chunked",),
        ("X: y\0",),
        ("X: y\x7f",),
        ("X\0: y",),
        ("X y: z",),
        ("X(: y",),
        (": y",),
        ("no colon",),
        ("",),
        ("Connection: Host",),
        ("Connection: close, Authorization",),
        ("Connection: Content-Length",),
    ],
)
def test_what_two_readers_read_differently_is_refused(lines):
    with pytest.raises(Malformed):
        request("Host: a.test", *(line.encode().decode("latin-1") for line in lines))


@pytest.mark.parametrize(
    "start",
    [
        "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET /", "GET / HTTP/1.10", "GET / HTTP/1.2",
        "GET / http/1.1", "GET / HTTP/01.1", "GET\t/ HTTP/1.1", "GET / x HTTP/1.1", "G\0T / HTTP/1.1",
        "GET /\x01 HTTP/1.1",
        "GET /\x7f HTTP/1.1", "PRI * HTTP/2.0", "GET / HTTP/2.0", "GET / HTTP/0.9", "", "(GET / HTTP/1.1",
    ],
)  # fmt: skip
def test_a_request_line_has_one_spelling(start):
    with pytest.raises(Malformed):
        request("Host: a.test", start=start)


def test_http2_without_tls_is_told_so():
    with pytest.raises(Malformed, match="HTTP/2 without TLS") as caught:
        request(start="PRI * HTTP/2.0")
    assert caught.value.status == 505


def test_chunked_needs_http_1_1():
    assert request("Transfer-Encoding: Chunked").body_bytes is None
    with pytest.raises(Malformed):
        request("Transfer-Encoding: chunked", start="GET / HTTP/1.0")


@pytest.mark.parametrize("count", [0, 2])
def test_there_is_exactly_one_host(count):
    with pytest.raises(Malformed, match="Host"):
        the_host(request(*["Host: a.test"] * count), default_port=80)


@pytest.mark.parametrize(
    "text",
    [
        *"""a.test@evil.test user:pw@a.test a.test: a.test:0 a.test:65536 a.test:080 a.test:+80 a.test:8O a.test/
    a.test\\x ::1 [::1 [fe80::1%25eth0] [::ffff:1.2.3] 2130706433 0x7f000001 017700000001 127.1 0x7f.0.0.1 127.0.0.01
    1.2.3.4.5
    a..test .a.test -a.test a.test,b.test a%2etest a.test#x *.test""".split(),
        *("", "a test", "ａ.test", "а.test", "a。test", "a.test, a.test"),
    ],
)
def test_a_host_header_has_one_spelling(text):
    with pytest.raises(Malformed):
        the_host(request(f"Host: {text.encode().decode('latin-1')}"), default_port=80)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.test", Target("a.test", 80)),
        ("A.TEST.:8080", Target("a.test", 8080)),
        ("1.2.3.4:81", Target("1.2.3.4", 81)),
        ("[FD00::5]:81", Target("fd00::5", 81)),
        ("[::ffff:1.2.3.4]", Target("1.2.3.4", 80)),
        ("xn--bcher-kva.test", Target("xn--bcher-kva.test", 80)),
    ],
)
def test_hosts_come_out_in_their_one_spelling(text, expected):
    assert the_host(request(f"Host: {text}"), default_port=80) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.test", (Target("a.test", 80), "/")),
        ("HTTP://A.test:81?q", (Target("a.test", 81), "/?q")),
        ("http://a.test/x@y:z//..%2f", (Target("a.test", 80), "/x@y:z//..%2f")),
    ],
)
def test_an_absolute_address_is_taken_apart(url, expected):
    assert read_url(url, scheme="http", default_port=80) == expected


@pytest.mark.parametrize(
    "url",
    """https://a.test/ ftp://a.test/ http:/a.test http:a.test http:///x http://a.test@evil.test/ http://a.test\\@evil.test/
    http://evil.test#@a.test/ http://a.test/#f //a.test/ http://[::1]x/ http://a.test:/ http://a.test%00.evil.test/""".split(),
)
def test_an_address_that_hides_its_host_is_refused(url):
    with pytest.raises(Malformed):
        read_url(url, scheme="http", default_port=80)


# ── where a head ends ──


@given(st.integers(1, 40), st.binary(max_size=20))
def test_the_end_of_a_head_is_found_in_any_pieces(step, rest):
    head = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
    data, buffer, scanned, found = head + rest, bytearray(), 0, None
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        found, scanned = find_head(buffer, scanned)
        if found is not None:
            break
    assert found == len(head)


@pytest.mark.parametrize("data", [b"\n", b"GET / HTTP/1.1\n\n", b"GET / HTTP/1.1\r\nHost: a\n\r\n", b"x\r\n\n"])
def test_a_bare_line_feed_is_refused_at_once(data):
    with pytest.raises(Malformed, match="bare LF"):
        find_head(bytearray(data), 0)


def test_an_endless_head_is_refused_when_it_reaches_the_bound():
    assert find_head(bytearray(MAX_HEAD - 1), 0) == (None, MAX_HEAD - 1)
    with pytest.raises(Malformed) as caught:
        find_head(bytearray(MAX_HEAD), 0)
    assert caught.value.status == 431


def test_fields_are_counted():
    assert request(*["A: b"] * MAX_FIELDS)
    with pytest.raises(Malformed, match="more than"):
        request(*["A: b"] * (MAX_FIELDS + 1))


# ── answers ──


@pytest.mark.parametrize(
    ("lines", "start", "method", "expected"),
    [
        (("Content-Length: 3",), "HTTP/1.1 200 OK", "GET", (3, False, False)),
        (("Transfer-Encoding: gzip, chunked",), "HTTP/1.1 200 OK", "GET", (None, True, False)),
        (("Transfer-Encoding: gzip",), "HTTP/1.1 200 OK", "GET", (None, False, False)),
        ((), "HTTP/1.1 200", "GET", (None, False, False)),
        (("Content-Length: 3", "Connection: close"), "HTTP/1.1 200 OK", "HEAD", (0, False, True)),
        (("Content-Length: 3",), "HTTP/1.1 304 Not Modified", "GET", (0, False, False)),
        (("Transfer-Encoding: chunked",), "HTTP/1.1 204 No Content", "GET", (0, False, False)),
        (("Content-Length: 3",), "HTTP/1.0 200 OK", "GET", (3, False, True)),
        ((), "HTTP/1.1 100 Continue", "GET", (0, False, False)),
    ],
)
def test_how_far_an_answer_reaches(lines, start, method, expected):
    found = response(*lines, start=start, method=method)
    assert (found.body_bytes, found.is_chunked, found.closes) == expected


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        (("Content-Length: 3", "Transfer-Encoding: chunked"), "HTTP/1.1 200 OK"),
        (("Content-Length: 3", "Content-Length: 4"), "HTTP/1.1 200 OK"),
        (("Transfer-Encoding: chunked",), "HTTP/1.0 200 OK"),
        ((), "HTTP/2 200 OK"),
        ((), "ICY 200 OK"),
        ((), "HTTP/1.1 20 OK"),
        ((), "HTTP/1.1 999 x"),
        ((" folded",), "HTTP/1.1 200 OK"),
    ],
)
def test_an_answer_with_two_readings_is_refused(lines, start):
    with pytest.raises(Malformed):
        response(*lines, start=start)


# ── anything ──


@given(st.binary(max_size=120))
def test_any_bytes_are_a_head_or_malformed(data):
    for raw in (data + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n"):
        with contextlib.suppress(Malformed):
            found = parse_request(raw)
            # Written anew it reads the same: nothing hides in the spelling.
            assert (
                parse_request(write_head(f"{found.method} {found.target} HTTP/1.{found.minor}", found.fields)) == found
            )
        with contextlib.suppress(Malformed):
            parse_response(raw, method="GET")


@given(st.text(max_size=80))
def test_any_text_is_an_address_or_malformed(text):
    for url in (text, f"http://{text}"):
        with contextlib.suppress(Malformed):
            target, path = read_url(url, scheme="http", default_port=80)
            assert target.host
            assert path.startswith("/")


def test_a_page_of_ours_is_one_whole_answer():
    page = write_page(403, "Forbidden", "evil.test:80 is not granted.")
    head, _, body = page.partition(b"\r\n\r\n")
    found = parse_response(head + b"\r\n\r\n", method="GET")
    assert (found.status, found.body_bytes, found.closes) == (403, len(body), True)
    assert body == b"palyra: evil.test:80 is not granted.\n"
