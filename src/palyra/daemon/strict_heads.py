"""Heads of requests that two readers could read two ways are refused before h11 reads them.

Refused: a line break without CR, a line folded onto the next, two `Authorization`, two `Content-Length` (also as
`2, 2`), `Content-Length` beside `Transfer-Encoding`, `Transfer-Encoding` in HTTP/1.0, a bare CR in a chunk's head. A
proxy in front of the daemon may read each of them otherwise, so one request could carry another (request smuggling),
or a second credential. h11 reads most of them as it likes.

Not here: plain requests, whose narrow spelling has none of these (plain).
"""

from __future__ import annotations

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_LONE_BREAK = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED = re.compile(rb"\r\n[ \t]")
_NAME = re.compile(rb"\r\n([^\s:]+)[ \t]*:")
_LENGTHS = re.compile(rb"\r\ncontent-length[ \t]*:[^\r\n]*,", re.IGNORECASE)
_ONCE = (b"authorization", b"content-length", b"host")


def find_fault(head: bytes) -> str | None:
    """Of a whole head, from its request line to its empty line."""
    if _LONE_BREAK.search(head):
        return "A line of the request ends without CR LF."
    if _FOLDED.search(head):
        return "A header of the request is folded onto a second line."
    names = [name.lower() for name in _NAME.findall(head)]
    for name in _ONCE:
        if names.count(name) > 1:
            return f"The request has two headers {name.decode()}."
    if b"content-length" in names and b"transfer-encoding" in names:
        return "The request has Content-Length beside Transfer-Encoding."
    if _LENGTHS.search(head):
        return "The request has two lengths in one header."
    if b"transfer-encoding" in names and not head.partition(b"\r\n")[0].endswith(b"HTTP/1.1"):
        return "The request has Transfer-Encoding, and is not HTTP/1.1."
    return None


class StrictBuffer(ReceiveBuffer):
    """h11's buffer, which hands on only heads without fault; h11 checks what it reads of them."""

    fault: str | None = None

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self._data)
        lines: list[bytearray] | None = super().maybe_extract_lines()
        if lines is not None:
            self.fault = find_fault(before[: len(before) - len(self._data)])
            if self.fault is not None:
                raise h11.RemoteProtocolError(self.fault)
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Of a chunk: its size and its extensions."""
        line: bytearray | None = super().maybe_extract_next_line()
        if line is not None and b"\r" in line[:-2]:
            self.fault = "A chunk's head has a CR without LF."
            raise h11.RemoteProtocolError(self.fault)
        return line
