"""How the engine and a jailed worker speak: frames over two pipes, the same code at both ends.

A frame is a kind, a head of JSON and a body of bytes. The engine asks for one thing at a time (load, run) and the
worker may ask back (host calls) until it says how the guest ended. The worker is not trusted: a guest that broke out of
wasmtime speaks through it, so the engine bounds every size, checks every field and answers only what the plan granted.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final

HEADER: Final = struct.Struct("<BII")
MAX_HEAD_BYTES: Final = 256 * 1024
LOAD, RUN, ANSWER, READY, LOADED, INVALID, ASK, END = range(1, 9)


class BadFrame(ValueError):
    """The other end does not keep to the rules: it is ended."""


@dataclass(frozen=True)
class Frame:
    kind: int
    head: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def pack(self) -> bytes:
        head = json.dumps(self.head, separators=(",", ":")).encode()
        return HEADER.pack(self.kind, len(head), len(self.body)) + head + self.body


class Parser:
    """Bytes as they come → frames. What does not fit the bounds is an error at its header, before it is awaited."""

    def __init__(self, *, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        if len(self._buffer) < HEADER.size:
            return None
        kind, head_size, body_size = HEADER.unpack_from(self._buffer)
        if head_size > MAX_HEAD_BYTES or body_size > self._max_body_bytes or not LOAD <= kind <= END:
            raise BadFrame("a frame is too large or unknown")
        end = HEADER.size + head_size + body_size
        if len(self._buffer) < end:
            return None
        head_end = HEADER.size + head_size
        frame = Frame(kind, _head(bytes(self._buffer[HEADER.size : head_end])), bytes(self._buffer[head_end:end]))
        del self._buffer[:end]
        return frame


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("a frame's head is no JSON") from None
    if not isinstance(head, dict):
        raise BadFrame("a frame's head is no object")
    return head
