"""The parsing half of palyra.http.fetch: foreign bytes to text, inside a sandbox without any network.

Started by path as `python3 -I -S page.py`. On stdin one line of JSON (content_type, content_encoding, max_bytes,
format) and then the body as it came over the wire; on stdout one JSON answer: {"result": {"content_type", "truncated",
"text" or "body_base64"}}, or {"error": …}. Compressed bodies are unpacked up to `max_bytes` and no further, so a bomb
is a cut text; HTML becomes its text, without scripts and styles; what is no text comes as base64.

Not here: the network (egress/fetch), what becomes of the answer (engine/fetch).
"""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from html.parser import HTMLParser
from typing import Any

CHARSETS = frozenset(
    """
    utf-8 utf8 us-ascii ascii utf-16 utf-16le utf-16be latin-1 latin1 iso-8859-1 iso-8859-2 iso-8859-5 iso-8859-7
    iso-8859-9 iso-8859-15 windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1256 koi8-r
    shift_jis shift-jis euc-jp iso-2022-jp gb2312 gbk gb18030 big5 euc-kr
    """.split()
)
"""Python knows encodings that are no charsets, some of them slow by design."""
_META = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_TEXTUAL = re.compile(r"text/.*|application/(?:[\w.-]+\+)?(?:json|xml|javascript|x-ndjson|yaml|toml|graphql|sql).*")
_HTML = ("text/html", "application/xhtml+xml")
_SKIPPED = frozenset({"script", "style", "template", "svg"})
_BLOCKS = frozenset(
    """
    address article aside blockquote br dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav
    ol p pre section table title tr ul
    """.split()
)


class Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Text(HTMLParser):
    """The words of a page, a line for each block; what scripts, styles and drawings hold is left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipping = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            return
        if tag in _SKIPPED:
            self._skipping = tag
        elif tag in _BLOCKS:
            self.parts.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th"):
            self.parts.append("\t")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._skipping:
            self._skipping = ""
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.parts.append(data)

    def parse_html_declaration(self, i: int) -> int:
        """`<![` with no name after it ends older parsers by an assertion; a browser takes it for a comment."""
        try:
            return super().parse_html_declaration(i)
        except AssertionError:
            return self.parse_bogus_comment(i)

    @property
    def text(self) -> str:
        whole = re.sub(r"[ \t\r\f\v]*\n[ \t\r\f\v]*", "\n", re.sub(r"[ \r\f\v]+", " ", "".join(self.parts)))
        return re.sub(r"\n{3,}", "\n\n", whole).strip() + "\n"


def unpack(body: bytes, encoding: str, most: int) -> tuple[bytes, bool]:
    """(content, whether it was cut)."""
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    names = [name for name in names if name != "identity"]
    if not names or not body:
        return body[:most], len(body) > most
    if len(names) > 1 or names[0] not in ("gzip", "x-gzip", "deflate"):
        raise Refused("BAD_ENCODING", f"The answer is encoded as {', '.join(names)[:100]}, which is not understood.")
    for bits in (47,) if names[0] != "deflate" else (15, -15):
        engine = zlib.decompressobj(bits)
        try:
            content = engine.decompress(body, most + 1)
        except zlib.error:
            continue
        return content[:most], len(content) > most or not engine.eof
    raise Refused("BAD_ENCODING", "The answer's compressed body is damaged.")


def charset_of(content_type: str, content: bytes) -> str:
    found = re.search(r"charset=[\"']?([A-Za-z0-9_-]{1,40})", content_type, re.IGNORECASE)
    named = found[1].lower() if found else ""
    if not named and (meta := _META.search(content[:4096])):
        named = meta[1].decode("ascii").lower()
    if content.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    return named if named in CHARSETS else "utf-8"


def read(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    content, cut = unpack(body, head["content_encoding"], head["max_bytes"])
    content_type = head["content_type"]
    kind = content_type.split(";")[0].strip().lower()
    answer: dict[str, Any] = {"content_type": content_type, "truncated": cut}
    if not (_TEXTUAL.fullmatch(kind) or (not kind and b"\0" not in content[:1024])):
        return answer | {"body_base64": base64.b64encode(content).decode("ascii")}
    text = content.decode(charset_of(content_type, content), "replace")
    if kind in _HTML and head["format"] == "text":
        page = Text()
        page.feed(text)
        page.close()
        text = page.text
    return answer | {"text": text}


def main() -> int:
    try:
        head = json.loads(sys.stdin.buffer.readline())
        answered: dict[str, Any] = {"result": read(head, sys.stdin.buffer.read())}
    except Refused as refusal:
        answered = {"error": {"code": refusal.code, "message": refusal.message}}
    json.dump(answered, sys.stdout, ensure_ascii=True)
    sys.stdout.flush()
    return 1 if "error" in answered else 0


if __name__ == "__main__":
    sys.exit(main())
