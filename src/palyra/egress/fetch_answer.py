"""One HTTP/1.1 answer, read from bytes as they come: its head, and where its body ends. Sans-io, strict, bounded.

Rules: lines end in CRLF or a bare LF; a head has at most 64 KiB and 100 fields; a name is a token, a value holds no
control character; folded lines are refused. The body ends by exactly one rule: none for HEAD, 1xx, 204 and 304;
chunked; one Content-Length; else when the connection closes. Both, or lengths that differ, is an answer that two
readers would read differently, and is refused. At most `max_bytes` of the body are kept, then reading stops. Every byte
is looked at once, however small the pieces it comes in.

Not here: sockets (egress/fetch), decompression and meaning (inside/page).
"""

from __future__ import annotations

import re

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 100
MAX_CHUNK_LINE = 256
MAX_INTERIM = 8
MAX_CHUNKS = 100_000
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: [\x20-\x7e\x80-\xff]*)?")
_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


class BadAnswer(ValueError):
    """The server's bytes are no answer that has one meaning."""


class Answer:
    """Feed it until `done`; then `status`, `fields`, `body` and `truncated` are what came."""

    def __init__(self, *, method: str, max_bytes: int) -> None:
        self._method = method
        self._max_bytes = max_bytes
        self._pending = b""
        self._at = 0
        """Where in what is pending the next step begins."""
        self._state = "head"
        self._left = 0
        self._searched = 0
        self._interim = 0
        self._counted = 0
        self._chunks: list[bytes] = []
        self._size = 0
        self.status = 0
        self.fields: tuple[tuple[str, str], ...] = ()
        self.truncated = False

    @property
    def done(self) -> bool:
        return self._state == "done"

    @property
    def body(self) -> bytes:
        return b"".join(self._chunks)

    def feed(self, data: bytes) -> None:
        self._pending += data
        while not self.done and self._step():
            pass
        self._pending, self._at = self._pending[self._at :], 0

    def close(self) -> None:
        """The server has closed the connection."""
        if self._state == "close":
            self._state = "done"
        elif not self.done:
            raise BadAnswer("the connection ended before the answer did")

    def _step(self) -> bool:
        """Whether something was done with what is pending."""
        match self._state:
            case "head":
                return self._read_head()
            case "length" | "close" | "chunk":
                return self._take_body()
            case "chunk-size":
                return self._read_chunk_size()
            case "chunk-end":
                return self._read_chunk_end()
            case _:
                return self._read_trailer()

    # ── the head ──

    def _read_head(self) -> bool:
        end = _HEAD_END.search(self._pending, max(self._at, self._searched - 3))
        if (end.start() if end else len(self._pending)) - self._at > MAX_HEAD_BYTES:
            raise BadAnswer(f"its head is longer than {MAX_HEAD_BYTES} bytes")
        if end is None:
            self._searched = len(self._pending) - self._at
            return False
        head, self._at, self._searched = self._pending[self._at : end.start()], end.end(), 0
        self._parse_head(head)
        if 100 <= self.status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM or self.status == 101:
                raise BadAnswer("it sends one interim answer after another, or switches protocols")
            return True
        self._choose_body()
        return True

    def _parse_head(self, head: bytes) -> None:
        lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
        found = _STATUS.fullmatch(lines[0])
        if found is None:
            raise BadAnswer("it does not begin as an HTTP/1.1 answer")
        if len(lines) - 1 > MAX_FIELDS:
            raise BadAnswer(f"it has more than {MAX_FIELDS} header fields")
        fields = []
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise BadAnswer("a header field is malformed")
            fields.append((name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")))
        self.status, self.fields = int(found[1]), tuple(fields)

    def _all(self, name: str) -> list[str]:
        return [part.strip() for key, value in self.fields if key == name for part in value.split(",")]

    def _choose_body(self) -> None:
        codings, lengths = self._all("transfer-encoding"), set(self._all("content-length"))
        if codings and lengths:
            raise BadAnswer("it gives its length in two ways")
        if self._method == "HEAD" or self.status in (204, 304):
            self._state = "done"
        elif codings:
            if [coding.lower() for coding in codings] != ["chunked"]:
                raise BadAnswer("it uses a transfer coding other than chunked")
            self._state = "chunk-size"
        elif lengths:
            (text, *others) = lengths
            if others or not (text.isascii() and text.isdigit() and len(text) <= 15):
                raise BadAnswer("its Content-Length is malformed")
            self._left = int(text)
            self._state = "length" if self._left else "done"
        else:
            self._state = "close"

    # ── the body ──

    def _take_body(self) -> bool:
        if self._at == len(self._pending):
            return False
        bounded = self._state != "close"
        data = self._pending[self._at : self._at + self._left if bounded else None]
        self._at += len(data)
        room = self._max_bytes - self._size
        self._chunks.append(data[:room])
        self._size += min(len(data), room)
        if len(data) > room:
            self.truncated, self._state = True, "done"
            return True
        if bounded:
            self._left -= len(data)
            if not self._left:
                self._state = "done" if self._state == "length" else "chunk-end"
        return True

    def _line(self) -> bytes | None:
        end = self._pending.find(b"\n", self._at, self._at + MAX_CHUNK_LINE)
        if end < 0:
            if len(self._pending) - self._at >= MAX_CHUNK_LINE:
                raise BadAnswer("a chunk's line is too long")
            return None
        line, self._at = self._pending[self._at : end], end + 1
        return line.removesuffix(b"\r")

    def _read_chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise BadAnswer("a chunk's size is malformed")
        self._counted += 1
        if self._counted > MAX_CHUNKS:
            raise BadAnswer(f"its body comes in more than {MAX_CHUNKS} chunks")
        self._left = int(found[1], 16)
        self._state = "chunk" if self._left else "trailer"
        return True

    def _read_chunk_end(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line:
            raise BadAnswer("a chunk is longer than it announces")
        self._state = "chunk-size"
        return True

    def _read_trailer(self) -> bool:
        """Fields after the last chunk are read over: nothing may be decided by them."""
        line = self._line()
        if line is None:
            return False
        self._interim += 1
        if self._interim > MAX_FIELDS:
            raise BadAnswer("its trailer has too many fields")
        if not line:
            self._state = "done"
        return True
