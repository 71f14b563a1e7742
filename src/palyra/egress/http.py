"""HTTP/1.1 heads: where one ends, what it says, how its body is framed. Strict, because others read it after us.

Rules, each closing a way to have two readers see two requests: lines end in CR LF, no bare CR or LF, no NUL or other
controls; no folded lines; no space before a colon; exactly one Host; never both Content-Length and Transfer-Encoding,
never two of one; Transfer-Encoding is `chunked` and nothing else; Connection names no header of its own choosing. A
head is bounded in bytes, lines and fields. What is sent on is written anew from the parts, never copied.

Not here: bodies (egress/bodies), whose Host it may be (egress/exchange), credentials (egress/credentials).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palyra.egress.grammar import Malformed, Target, parse_authority, show
from palyra.values import dataclass

MAX_HEAD = 65_536
_URL_PORTS = {"http": 80, "https": 443}
MAX_FIELDS = 200

Fields = tuple[tuple[str, str], ...]

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST = re.compile(rf"({_TOKEN}{{1,40}}) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
_NAME = re.compile(rf"{_TOKEN}{{1,128}}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_DIGITS = re.compile(r"[0-9]{1,18}")
_CONNECTION = frozenset({"close", "keep-alive", "upgrade", "te", "http2-settings", "proxy-connection", "keepalive"})
_FRAMING = frozenset({"content-length", "transfer-encoding", "host"})
_ROUTES = re.compile(
    r"host|forward|original|rewrite|backend|upstream|proxy|destination|authority|callback|ur[il](?![a-z])",
    re.IGNORECASE,
)
"""In a field's name: some server goes by its value in place of Host or of the path. `_` and `-` do not matter."""
_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+;=:@%/?-]*")
"""One path, which no reader takes for a list or for a host's address."""
_MAY_HAVE_BODY = frozenset("POST PUT PATCH PROPFIND PROPPATCH REPORT MKCOL LOCK SEARCH QUERY".split())
"""Servers read the body of these. Of another method some leave it unread, and take it for the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    target: str
    """As it was sent: a path, an absolute URL, an authority or a star."""
    minor: int
    fields: Fields
    body_bytes: int | None
    """None: chunked."""
    options: frozenset[str]
    """What Connection says."""

    def values(self, name: str) -> list[str]:
        return values_of(self.fields, name)

    @property
    def upgrades(self) -> bool:
        """To WebSocket. Other upgrades (h2c, TLS) would carry requests that nobody judges: they are not passed on."""
        return "upgrade" in self.options and [one.lower() for one in self.values("upgrade")] == ["websocket"]

    @property
    def closes(self) -> bool:
        return "close" in self.options or (self.minor == 0 and "keep-alive" not in self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    minor: int
    fields: Fields
    body_bytes: int | None
    """None: until the connection closes."""
    is_chunked: bool
    closes: bool


def find_head(buffer: bytearray, scanned: int) -> tuple[int | None, int]:
    """(end of the head, how far it was read): call again with that when there is more. Raises `Malformed`."""
    while True:
        at = buffer.find(b"\n", scanned, MAX_HEAD)
        if at < 0:
            if len(buffer) >= MAX_HEAD:
                raise Malformed(f"the head is longer than {MAX_HEAD} bytes", status=431)
            return None, max(scanned, len(buffer))
        if at == 0 or buffer[at - 1] != 0x0D:
            raise Malformed("a line of the head ends in a bare LF")
        if at >= 3 and buffer[at - 3 : at] == b"\r\n\r":
            return at + 1, at + 1
        scanned = at + 1


def parse_request(head: bytes) -> Request:
    line, fields = _read_lines(head)
    found = _REQUEST.fullmatch(line)
    if found is None:
        raise _bad_request_line(line)
    minor = int(found[3])
    return Request(
        method=found[1],
        target=found[2],
        minor=minor,
        fields=fields,
        body_bytes=_request_framing(fields, minor),
        options=_options(fields),
    )


def parse_response(head: bytes, *, method: str) -> Response:
    line, fields = _read_lines(head)
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed("the host's answer does not begin like HTTP/1.1", status=502)
    minor, status = int(found[1]), int(found[2])
    lengths, codings = _framing_fields(fields)
    if codings and not minor:
        raise Malformed("an answer in HTTP/1.0 has a Transfer-Encoding")
    options = {word for value in values_of(fields, "connection") for word in _words(value)}
    is_chunked = bool(codings) and _words(codings[-1])[-1:] == ["chunked"]
    body_bytes = _length(lengths[0]) if lengths else None
    if method == "HEAD" or status in (204, 304) or status < 200:
        is_chunked, body_bytes = False, 0
    return Response(
        status=status,
        minor=minor,
        fields=fields,
        body_bytes=body_bytes,
        is_chunked=is_chunked,
        closes="close" in options or (minor == 0 and "keep-alive" not in options),
    )


def read_url(target: str, *, scheme: str, default_port: int) -> tuple[Target, str]:
    """The host and the path of an absolute-form target. Raises `Malformed`."""
    prefix = f"{scheme}://"
    if target[: len(prefix)].lower() != prefix:
        raise Malformed(f"the request target is neither a path nor an {prefix} address")
    rest = target[len(prefix) :]
    end = min((at for at in (rest.find(sign) for sign in "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    if "@" in authority:
        raise Malformed("the address carries a user name, which may hide which host is meant")
    return parse_authority(authority, default_port=default_port), check_path(path if path[:1] == "/" else "/" + path)


def check_path(path: str) -> str:
    if not path.startswith("/") or "#" in path:
        raise Malformed("the request target is not a path")
    return path


def the_host(request: Request, *, default_port: int) -> Target:
    """What the one Host header names. Raises `Malformed`."""
    values = request.values("host")
    if len(values) != 1:
        raise Malformed("there must be exactly one Host header" if values else "there is no Host header")
    return parse_authority(values[0], default_port=default_port)


def routing_fields(fields: Fields, *, port: int) -> Iterator[tuple[str, Target | None]]:
    """(field, host) of what some servers go by in place of Host or of the path; None: the value is no host either.

    A path is not among them, nor is an empty value. `port`: of a host that is named without one.
    """
    for name, value in fields:
        is_hop = name.lower() == "host" or name.lower().startswith("proxy-")
        if is_hop or not value or not _ROUTES.search(name) or _PATH.fullmatch(value):
            continue
        try:
            yield name, _routed(value, port)
        except Malformed:
            yield name, None


def _routed(value: str, port: int) -> Target:
    scheme, is_url, rest = value.partition("://")
    if not is_url:
        return parse_authority(value, default_port=port)
    if scheme not in _URL_PORTS:
        raise Malformed("the value is neither a path nor an address")
    authority, slash, path = rest.partition("/")
    if slash and not _PATH.fullmatch(slash + path):
        raise Malformed("the value is neither a path nor an address")
    return parse_authority(authority, default_port=_URL_PORTS[scheme])


def check_body(request: Request) -> None:
    """Raises `Malformed` for a body that some servers would read as a second request."""
    if request.body_bytes != 0 and request.method not in _MAY_HAVE_BODY:
        raise Malformed(f"{request.method} has a body, which some servers take for a second request")


def values_of(fields: Fields, name: str) -> list[str]:
    return [value for field, value in fields if field.lower() == name]


def write_head(first_line: str, fields: Fields) -> bytes:
    lines = [first_line, *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def write_page(status: int, phrase: str, text: str) -> bytes:
    """A whole answer of our own, after which the connection closes."""
    body = f"palyra: {text}\n".encode()
    fields = (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    )
    return write_head(f"HTTP/1.1 {status} {phrase}", fields) + body


def parse_fields(lines: list[str]) -> Fields:
    if len(lines) > MAX_FIELDS:
        raise Malformed(f"there are more than {MAX_FIELDS} header fields", status=431)
    return tuple(_parse_field(line) for line in lines)


def _read_lines(head: bytes) -> tuple[str, Fields]:
    lines = head.decode("latin-1")[:-4].split("\r\n")
    return lines[0], parse_fields(lines[1:])


def _parse_field(line: str) -> tuple[str, str]:
    if line.startswith((" ", "\t")):
        raise Malformed("a header field is folded over two lines")
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise Malformed(f"{show(name[:40])!r} is not a header field")
    # Gateways that hand headers on as environment variables cannot tell these from the real ones.
    if "_" in name and name.lower().replace("_", "-") in _FRAMING:
        raise Malformed(f"{name!r} looks like another header field")
    return name, value


def _bad_request_line(line: str) -> Malformed:
    if line == "PRI * HTTP/2.0":
        return Malformed("HTTP/2 without TLS is not forwarded: use HTTP/1.1", status=505)
    if re.search(r" HTTP/\d", line) and not re.search(r" HTTP/1\.[01]$", line):
        return Malformed("only HTTP/1.0 and HTTP/1.1 are forwarded", status=505)
    return Malformed("the request line is not method, target and version with single spaces")


def _framing_fields(fields: Fields) -> tuple[list[str], list[str]]:
    lengths, codings = values_of(fields, "content-length"), values_of(fields, "transfer-encoding")
    if lengths and codings:
        raise Malformed("Content-Length and Transfer-Encoding are both present")
    if len(lengths) > 1 or len(codings) > 1:
        raise Malformed("a field that gives the body's length appears twice")
    return lengths, codings


def _request_framing(fields: Fields, minor: int) -> int | None:
    lengths, codings = _framing_fields(fields)
    if codings:
        if codings[0].lower() != "chunked" or minor == 0:
            raise Malformed("the only Transfer-Encoding accepted is chunked, with HTTP/1.1", status=501)
        return None
    return _length(lengths[0]) if lengths else 0


def _length(text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise Malformed("Content-Length is not a number")
    return int(text)


def _words(value: str) -> list[str]:
    return [word.strip(" \t").lower() for word in value.split(",") if word.strip(" \t")]


def _options(fields: Fields) -> frozenset[str]:
    words = frozenset(word for value in values_of(fields, "connection") for word in _words(value))
    odd = sorted(words - _CONNECTION)
    if odd:
        # "Connection: Authorization" makes the next proxy drop the header that we add.
        raise Malformed(f"Connection names {show(odd[0])!r}, which it may not remove")
    return words
