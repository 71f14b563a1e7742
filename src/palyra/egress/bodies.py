"""How far a message body reaches: counted, chunked or until the end. Bytes in, bytes to pass on, and the rest.

Rules: a chunk's size is one to fifteen hexadecimal digits and is written anew; extensions and trailers are refused from
clients. A host's extensions are dropped; its trailers are read as strictly as heads, bounded, and may not speak of
framing, routing or credentials. What stands before an error is passed on, the error is kept in `broken`, and nothing
follows it. At most one line is held back at any time.

Not here: which of them a message has (egress/http).
"""

from __future__ import annotations

import re
from typing import Protocol

from palyra.egress.grammar import Malformed
from palyra.egress.http import parse_fields

MAX_LINE = 4096
MAX_TRAILERS = 16_384
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[\t\x20-\x7e]*)?")
_NO_TRAILERS = frozenset({
    *("host", "content-length", "transfer-encoding", "connection", "trailer", "te", "upgrade", "expect"),
    *("authorization", "cookie", "content-encoding", "content-type", "content-range", "set-cookie"),
})  # fmt: skip


class Body(Protocol):
    done: bool
    broken: Malformed | None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """(what is passed on, what comes after the body). Once broken, nothing more is passed on."""


class Counted:
    """Content-Length, and no body at all."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.broken: Malformed | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        mine, rest = (data, b"") if len(data) <= self._left else (data[: self._left], data[self._left :])
        self._left -= len(mine)
        self.done = self._left == 0
        return mine, rest


class UntilClose:
    def __init__(self) -> None:
        self.done = False
        self.broken: Malformed | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""


class Chunked:
    def __init__(self, *, is_request: bool) -> None:
        self._is_request = is_request
        self._line = bytearray()
        self._left = 0
        """Bytes of this chunk still to come, with the CR LF behind them."""
        self._in_trailers = False
        self._trailers: list[bytes] = []
        self._trailer_bytes = 0
        self.done = False
        self.broken: Malformed | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        out: list[bytes] = []
        at = 0
        try:
            while at < len(data) and not self.done and self.broken is None:
                at = self._take_data(data, at, out) if self._left else self._take_line(data, at, out)
        except Malformed as broken:
            self.broken = broken
        return b"".join(out), data[at:] if self.broken is None else b""

    def _take_data(self, data: bytes, at: int, out: list[bytes]) -> int:
        """The last two bytes counted are the CR LF that closes the chunk: passed on when both are there."""
        if self._left > 2:
            end = min(len(data), at + self._left - 2)
            out.append(data[at:end])
            self._left -= end - at
            return end
        if data[at] != (0x0D if self._left == 2 else 0x0A):
            raise Malformed("a chunk does not have the length it announces")
        self._left -= 1
        if not self._left:
            out.append(b"\r\n")
        return at + 1

    def _take_line(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = data.find(b"\n", at, at + MAX_LINE)
        self._line += data[at : end + 1 if end >= 0 else at + MAX_LINE]
        if len(self._line) > MAX_LINE:
            raise Malformed("a line of the chunked body is too long")
        if end < 0:
            return min(len(data), at + MAX_LINE)
        line = bytes(self._line)
        self._line.clear()
        if not line.endswith(b"\r\n"):
            raise Malformed("a line of the chunked body ends in a bare LF")
        if self._in_trailers:
            self._take_trailer(line[:-2], out)
        else:
            self._take_size(line[:-2], out)
        return end + 1

    def _take_size(self, line: bytes, out: list[bytes]) -> None:
        found = _SIZE.fullmatch(line)
        if found is None or (self._is_request and found[0] != found[1]):
            raise Malformed("the size of a chunk is not a plain hexadecimal number")
        size = int(found[1], 16)
        if size == 0:
            self._in_trailers = True
            return
        out.append(b"%x\r\n" % size)
        self._left = size + 2

    def _take_trailer(self, line: bytes, out: list[bytes]) -> None:
        if line:
            if self._is_request:  # some servers merge them with the head, where routing fields were judged
                raise Malformed("a request may not have trailers")
            self._trailers.append(line)
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_TRAILERS:
                raise Malformed("the trailers are too long", status=431)
            return
        fields = parse_fields([one.decode("latin-1") for one in self._trailers])
        if any(_is_no_trailer(name.lower().replace("_", "-")) for name, _ in fields):
            raise Malformed("a trailer says what only a header may say")
        lines = [f"{name}: {value}\r\n".encode("latin-1") for name, value in fields]
        out.append(b"0\r\n" + b"".join(lines) + b"\r\n")
        self.done = True


def _is_no_trailer(name: str) -> bool:
    return name in _NO_TRAILERS or name.startswith("proxy-")
