"""A plain request and its plain answer, as nearly every call over HTTP comes and goes: without h11's step by step.

A request is plain when it came whole, in one piece, and its head is of a narrow spelling that h11, and everybody else,
reads the one way there is: `POST`, a path without escapes or a query, HTTP/1.1, each header on a line of its own in
visible ASCII, one Host, one Content-Length in digits, and nothing that speaks of the connection, of encodings or of
waiting. An answer is plain when its head is made of words of our own alone (routes.Said). Whatever is otherwise, of
either, is h11's as before; what was read here and needs h11 after all (a stream, an error, a shut-down) is handed over
to it, as the bytes that came.

Rules: nothing is accepted here that h11 would refuse, and nothing read otherwise than h11 reads it (the tests hold the
two against each other). Not here: connections and their deadlines (daemon/wire_guard).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

from palyra.daemon.joining import JoiningTransport
from palyra.daemon.routes import HEADERS_SAID, HEADS, WHOLE_BODY, heads_in
from palyra.values import dataclass

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

MAX_HEAD_BYTES = 4096
_HEAD = re.compile(rb"POST (/[A-Za-z0-9/_-]*) HTTP/1\.1\r\n((?:[A-Za-z0-9-]+: [!-~]+(?: [!-~]+)*\r\n)+)")
_LINE = re.compile(rb"([A-Za-z0-9-]+): ([!-~ ]+)\r\n")
_DIGITS = re.compile(rb"[0-9]{1,15}")
_NOT_PLAIN = frozenset(
    {b"transfer-encoding", b"te", b"trailer", b"upgrade", b"expect", b"keep-alive", b"proxy-connection"}
)
_ANSWERS = {
    status: b"HTTP/1.1 %d %s\r\n" % (status, STATUS_PHRASES[status])
    for status in range(200, 600)
    if status not in (204, 205, 304)  # their bodies are none
}
_SAID = b"".join(b"%s: %s\r\n" % header for header in HEADERS_SAID)


@dataclass(frozen=True, slots=True)
class PlainHead:
    text: bytes
    """As it came, to its empty line."""
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case."""
    heads: dict[str, str]
    """The same for whoever looks one up (routes.heads_of)."""
    body_bytes: int


def read_plain_head(data: bytes) -> PlainHead | None:
    """None for what is not plain."""
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
    found = _HEAD.fullmatch(data, 0, end + 2) if end > 0 else None
    if found is None:
        return None
    headers = tuple((name.lower(), value) for name, value in _LINE.findall(found[2]))
    names = [name for name, _ in headers]
    if (
        names.count(b"authorization") > 1
        or names.count(b"host") != 1
        or names.count(b"content-length") != 1
        or not _NOT_PLAIN.isdisjoint(names)
    ):
        return None
    length = dict(headers)[b"content-length"]
    if _DIGITS.fullmatch(length) is None or any(name == b"connection" and v != b"keep-alive" for name, v in headers):
        return None
    return PlainHead(data[: end + 4], found[1].decode("ascii"), headers, heads_in(headers), int(length))


class PlainCycle(RequestResponseCycle):
    """Of one plain request. h11's connection has not heard of it, unless it is handed over."""

    def __init__(self, data: bytes, body: bytes, **given: Any) -> None:
        super().__init__(**given)
        self._data = data
        self._whole: bytes | None = body
        self._start: dict[str, Any] | None = None
        self.is_plain = True
        self.more_body = False

    async def receive(self) -> ASGIReceiveEvent:
        if self._whole is not None and not self.disconnected and not self.response_complete:
            body, self._whole = self._whole, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await super().receive()

    async def send(self, message: ASGISendEvent) -> None:
        if self.disconnected:
            return
        if not self.is_plain or self.response_complete:  # behind its answer there is nothing left to hand over
            await super().send(message)
        elif self._start is None and _begins_plainly(message):
            self._start, self.response_started = dict(message), True
        elif not self._answer(message):
            await self._hand_over()
            await super().send(message)

    def _answer(self, message: Any) -> bool:
        """Head and body at once; False, and nothing written, where that is not all there is to it."""
        start = self._start
        if start is None or self.flow.write_paused or not self.keep_alive:
            return False
        if message["type"] != "http.response.body" or message.get("more_body", False):
            return False
        body, headers = message.get("body", b""), start["headers"]
        line = _ANSWERS.get(start["status"])
        length = b"%d" % len(body)
        if line is None or headers[:1] != [(b"content-length", length)]:
            return False
        self.response_complete = True
        self._forget()
        self.message_event.set()
        assert isinstance(self.transport, JoiningTransport)
        self.transport.write_whole(b"%scontent-length: %s\r\n%s\r\n%s" % (line, length, _SAID, body))
        self.on_response()
        return True

    async def _hand_over(self) -> None:
        """From here on it is h11's: it reads what came, and is told what was begun."""
        self.is_plain = False
        self.conn.receive_data(self._data)
        self._forget()
        while not isinstance(event := self.conn.next_event(), h11.EndOfMessage):
            assert event not in (h11.NEED_DATA, h11.PAUSED), "it came whole"
        if self._start is not None:
            self.response_started = False
            await super().send(self._start)  # type: ignore[arg-type]

    def _forget(self) -> None:
        """An idle connection keeps its last request: thousands of them must not keep as many bodies."""
        self._data = b""
        cast("dict[str, Any]", self.scope).pop(WHOLE_BODY, None)


def _begins_plainly(message: Any) -> bool:
    """Of any other, a stream's above all, the head goes at once: its body may be long in coming."""
    return message["type"] == "http.response.start" and bool(message.get("headers", ())[1:] == HEADERS_SAID)


def scope_of(head: PlainHead, body: bytes, **given: Any) -> dict[str, Any]:
    """As uvicorn makes one."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "root_path": "",
        "path": head.path,
        "raw_path": head.path.encode("ascii"),
        "query_string": b"",
        "headers": list(head.headers),
        HEADS: head.heads,
        WHOLE_BODY: body,
    }
    return scope | given
