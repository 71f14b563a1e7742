"""How the engine and a jailed worker speak: frames over two pipes, the same code at both ends.

A frame is a kind, a head of JSON and a body of bytes. The engine asks for one thing at a time (load, run) and the
worker may ask back (host calls) until it says how the guest ended. The worker is not trusted: a guest that broke out of
wasmtime speaks through it, so the engine bounds every size, checks every field and answers only what the plan granted.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, NamedTuple

HEADER: Final = struct.Struct("<BII")
MAX_HEAD_BYTES: Final = 256 * 1024
LOAD, RUN, ANSWER, READY, LOADED, INVALID, ASK, END = range(1, 9)


_NO_HEAD: Final[dict[str, Any]] = {}


class BadFrame(ValueError):
    """The other end does not keep to the rules: it is ended."""


class Frame(NamedTuple):
    kind: int
    head: dict[str, Any] = _NO_HEAD
    """Only read: the next frame may have the same."""
    body: bytes = b""

    def pack(self) -> bytes:
        return pack(self.kind, pack_head(self.head), self.body)


def pack_head(head: dict[str, Any]) -> bytes:
    return json.dumps(head, separators=(",", ":")).encode()


def pack(kind: int, head: bytes, body: bytes) -> bytes:
    """A frame whose head was written before: most calls of a guest differ in their input alone."""
    return HEADER.pack(kind, len(head), len(body)) + head + body


class Parser:
    """Bytes as they come → frames. What does not fit the bounds is an error at its header, before it is awaited."""

    def __init__(self, *, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._last: tuple[bytes, dict[str, Any]] = b"{}", {}
        """A head as it came, and what it says: one after the other is mostly the same."""

    def feed(self, data: bytes) -> list[Frame]:
        if not self._buffer:  # mostly what comes is one frame
            frame, end = self._next(data)
            if frame is not None and end == len(data):
                return [frame]
            frames = [frame] if frame is not None else []
            self._buffer += data[end:]
        else:
            self._buffer += data
            frames = []
        while self._buffer:
            frame, end = self._next(self._buffer)
            if frame is None:
                break
            frames.append(frame)
            del self._buffer[:end]
        return frames

    def _next(self, data: bytes | bytearray) -> tuple[Frame | None, int]:
        """The first frame and where it ends; none, and 0, where it is not all there."""
        if len(data) < HEADER.size:
            return None, 0
        kind, head_size, body_size = HEADER.unpack_from(data)
        if head_size > MAX_HEAD_BYTES or body_size > self._max_body_bytes or not LOAD <= kind <= END:
            raise BadFrame("a frame is too large or unknown")
        head_end = HEADER.size + head_size
        end = head_end + body_size
        if len(data) < end:
            return None, 0
        return Frame(kind, self._head(bytes(data[HEADER.size : head_end])), bytes(data[head_end:end])), end

    def _head(self, text: bytes) -> dict[str, Any]:
        if text != self._last[0]:
            self._last = text, _head(text)
        return self._last[1]


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("a frame's head is not JSON") from None
    if not isinstance(head, dict):
        raise BadFrame("a frame's head is not an object")
    return head
