"""A connection's transport, as uvicorn writes to it: the head of an answer waits for its body, and both go together.

uvicorn hands over head and body one after the other, and each would be a packet, a system call and a wake-up of whoever
reads. A head that says how long its body is has that right behind it; one that does not (a stream) goes at once.

Rules: nothing stays behind: whatever is written next, a close as well, sends what waits.
"""

from __future__ import annotations

import asyncio
from typing import Any

_ANSWER = b"HTTP/1.1 "
_LENGTH = b"\r\ncontent-length: "


class JoiningTransport(asyncio.Transport):
    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._head = b""

    def write(self, data: Any) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data[:9] == _ANSWER and _LENGTH in data:
            self._head = data
            return
        if data:
            self._transport.write(data)

    def write_whole(self, data: bytes) -> None:
        """Head and body together: nothing comes behind them."""
        self._transport.write(self._head + data)
        self._head = b""

    def close(self) -> None:
        self.write(b"")
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def let_go(self) -> None:
        """The connection is over: asyncio's transport holds on to itself by what it calls to read."""
        if getattr(self._transport, "_read_ready_cb", None) is not None:
            self._transport._read_ready_cb = None  # type: ignore[attr-defined]

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()
