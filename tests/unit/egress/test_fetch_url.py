"""URLs for palyra.http.fetch: one reading, or a refusal."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.fetch_url import join_url, parse_url
from palyra.errors import Reason, Rejected
from palyra.model.fetch import FetchUrl


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://Example.COM", FetchUrl("https", "example.com", 443, "/")),
        ("http://example.com./a/b?c=d#frag", FetchUrl("http", "example.com", 80, "/a/b?c=d")),
        ("HTTPS://example.com:8443/", FetchUrl("https", "example.com", 8443, "/")),
        ("http://bücher.example/ä?ö=ü", FetchUrl("http", "xn--bcher-kva.example", 80, "/%C3%A4?%C3%B6=%C3%BC")),
        ("http://[2001:DB8::1]:80/x", FetchUrl("http", "2001:db8::1", 80, "/x")),
        ("http://[::ffff:127.0.0.1]/", FetchUrl("http", "127.0.0.1", 80, "/")),
        ("http://h/%0d%0aX: y".replace(" ", "%20"), FetchUrl("http", "h", 80, "/%0d%0aX:%20y")),
    ],
)
def test_a_url_is_read_into_its_one_spelling(text: str, url: FetchUrl):
    assert parse_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "ftp://h/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//h/",
        "http://",
        "http:///x",
        "http://user@h/",
        "http://user:pass@h/",
        "http://@h/",
        "http://:@h/",
        "http://h:0/",
        "http://h:99999/",
        "http://h:x/",
        "http://h/ x",
        "http://h/\r\nHost: evil",
        "http://h\\@evil/",
        "http://h/\x00",
        "http://h\t/",
        " http://h/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://127.1/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://a..b/",
        "http://-a.test/",
        "http://h/\ud800",
        "http://" + "a" * 9000,
    ],
)
def test_what_has_no_one_reading_is_refused(text: str):
    with pytest.raises(Rejected) as caught:
        parse_url(text)
    assert caught.value.reason is Reason.BAD_ARGUMENTS
    assert "pass" not in caught.value.detail.replace("password", "")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", "https://h.test/x"),
        ("x", "https://h.test/a/x"),
        ("?q", "https://h.test/a/b?q"),
        ("//g.test/", "https://g.test/"),
        ("http://g.test", "http://g.test/"),
        ("../../../x", "https://h.test/x"),
    ],
)
def test_a_redirect_is_joined_and_read_the_same_way(location: str, url: str):
    assert str(join_url(parse_url("https://h.test/a/b"), location)) == url


@given(text=st.text(max_size=60) | st.from_regex(r"https?://[\x00-\x7f]{0,40}", fullmatch=True))
def test_any_text_is_a_url_that_can_be_sent_or_a_refusal(text: str):
    with suppress(Rejected):
        url = parse_url(text)
        line = f"GET {url.path} HTTP/1.1\r\nHost: {url.authority}\r\n".encode("ascii")
        assert line.count(b"\r") == line.count(b"\n") == 2
        assert line.count(b" ") == 3
        assert parse_url(str(url)) == url
