"""The parsing half of palyra.http.fetch: bytes to text, bounded whatever they unpack to."""

from __future__ import annotations

import gzip
import json
import subprocess
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palyra.inside import page
from tests.promises import promise


def read(body: bytes, content_type: str = "text/html", **head: Any) -> dict[str, Any]:
    given = {"content_type": content_type, "content_encoding": "", "max_bytes": 1000, "format": "text"} | head
    return page.read(given, body)


def test_html_becomes_its_text():
    html = b"""<!doctype html><html><head><title>A &amp; B</title><style>p{}</style>
    <script>var x = "<p>no</p>";</script></head><body><h1>Head</h1><p>One   two<br>three <b>bold</b></p>
    <ul><li>a</li><li>b</ul><table><tr><td>1<td>2</table>
    <svg><text>no</text></svg><template>no</template>&lt;end&gt;</body></html>"""
    assert read(html)["text"] == "A & B\n\nHead\n\nOne two\nthree bold\n\n- a\n\n- b\n\n1\t2\n\n<end>\n"


def test_raw_leaves_it_as_it_is_and_other_text_is_not_touched():
    assert read(b"<p>x</p>", format="raw")["text"] == "<p>x</p>"
    assert read(b'{"a": "<p>"}', "application/json")["text"] == '{"a": "<p>"}'
    assert read(b"<a/>", "application/atom+xml; charset=utf-8")["text"] == "<a/>"


def test_what_is_no_text_comes_as_base64():
    assert read(b"\x89PNG\0", "image/png") == {
        "content_type": "image/png",
        "truncated": False,
        "body_base64": "iVBORwA=",
    }
    assert "body_base64" in read(b"a\0b", "")
    assert read(b"plain", "")["text"] == "plain"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("é".encode("latin-1"), "text/plain; charset=ISO-8859-1", "é"),
        ("日本".encode("shift_jis"), 'text/plain; charset="Shift_JIS"', "日本"),
        (b"\xef\xbb\xbfbom", "text/plain; charset=latin-1", "bom"),
        ("ü".encode("latin-1"), "text/plain; charset=idna", "\ufffd"),
        (b"caf\xe9", "text/plain; charset=rot13", "caf\ufffd"),
        (b'<meta charset="windows-1252">\x80', "text/html", "€\n"),
    ],
)
def test_charsets_are_those_of_the_web(body: bytes, content_type: str, text: str):
    assert read(body, content_type)["text"] == text


@promise("egress.hostile-server")
@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "deflate"])
def test_a_bomb_is_a_cut_text(encoding: str):
    plain = b"0" * (64 << 20)
    packed = zlib.compress(plain) if encoding == "deflate" else gzip.compress(plain)
    done = read(packed, "text/plain", content_encoding=encoding)
    assert (done["text"], done["truncated"]) == ("0" * 1000, True)


def test_packed_bodies_are_unpacked_and_cut_ones_say_so():
    raw = zlib.compress(b"hello")[2:-4]
    assert read(gzip.compress(b"hello"), "text/plain", content_encoding="identity, gzip")["text"] == "hello"
    assert read(raw, "text/plain", content_encoding="deflate")["text"] == "hello"
    assert read(gzip.compress(b"hello" * 100)[:-4], "text/plain", content_encoding="gzip")["truncated"] is True
    assert read(b"", "text/plain", content_encoding="gzip") == {
        "content_type": "text/plain",
        "truncated": False,
        "text": "",
    }


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
def test_what_cannot_be_unpacked_is_named(encoding: str):
    with pytest.raises(page.Refused) as caught:
        read(b"x", content_encoding=encoding)
    assert caught.value.code == "BAD_ENCODING"
    with pytest.raises(page.Refused):
        read(b"not gzip", content_encoding="gzip")


@pytest.mark.parametrize("opening", ["<![\0", "<![", "<![ x]>", "<![9]]>", "<![x", "<!\0", "<!", "<!x[", "<?", "</"])
def test_a_declaration_nobody_can_read_hides_nothing_after_it(opening: str):
    assert "after" in read(f"<p>before</p>{opening}><p>after</p>".encode(), "text/html")["text"]
    read(opening.encode(), "text/html")


@promise("egress.hostile-server")
@example(body=b"<![\0")
@given(body=st.binary(max_size=300) | st.text("<>/&;!-=\"' abpscriptylm\n", max_size=300).map(str.encode))
def test_any_bytes_of_any_page_are_read(body: bytes):
    for kind in ("text/html", "text/plain", "image/png", ""):
        answer = read(body, kind)
        assert ("text" in answer) != ("body_base64" in answer)
        json.dumps(answer)


def test_it_runs_by_path_alone():
    head = json.dumps({"content_type": "text/html", "content_encoding": "", "max_bytes": 9, "format": "text"}).encode()
    argv = ["/usr/bin/python3", "-I", "-S", str(page.__file__)]
    done = subprocess.run(argv, input=head + b"\n<p>hi", capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {"result": {"content_type": "text/html", "truncated": False, "text": "hi\n"}}
