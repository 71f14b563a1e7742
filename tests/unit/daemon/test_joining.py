"""Head and body of an answer are one packet; nothing else waits."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from typing import Any

import pytest

from palyra.daemon.joining import JoiningTransport

HEAD = b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n"


class Line(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def write(self, data: Any) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def abort(self) -> None:
        self.seen.append("aborted")


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ((HEAD, b"ok", b""), [HEAD + b"ok"]),
        ((HEAD, b"o", b"k"), [HEAD + b"o", b"k"]),
        ((HEAD, b"", b""), [HEAD]),
        ((HEAD, b"ok", HEAD, b"ok"), [HEAD + b"ok", HEAD + b"ok"]),
        ((STREAM, b"2\r\nok\r\n"), [STREAM, b"2\r\nok\r\n"]),
        ((b"HTTP/1.1 100 \r\n\r\n", HEAD, b"ok"), [b"HTTP/1.1 100 \r\n\r\n", HEAD + b"ok"]),
    ],
)
def test_a_head_that_tells_its_length_waits_for_what_follows(written: tuple[bytes, ...], sent: list[bytes]) -> None:
    line = Line()
    joining = JoiningTransport(line)
    for data in written:
        joining.write(data)
    assert line.seen == sent


def test_nothing_stays_behind_when_the_connection_is_closed() -> None:
    line = Line()
    joining = JoiningTransport(line)
    joining.write(HEAD)
    joining.close()
    assert line.seen == [HEAD, "closed"]


def test_what_waits_is_dropped_with_a_connection_that_is_cut() -> None:
    line = Line()
    joining = JoiningTransport(line)
    joining.write(HEAD)
    joining.abort()
    assert line.seen == ["aborted"]


def test_a_connection_that_is_over_leaves_no_circle():
    """asyncio's transport holds on to itself by what it calls to read."""

    async def work() -> list[object]:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self.line = JoiningTransport(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                self.line.let_go()
                gone.set()

        one, other = socket.socketpair()
        transport, protocol = await loop.connect_accepted_socket(Protocol, one)
        left = weakref.ref(transport)
        del transport, protocol
        other.close()
        await gone.wait()
        await asyncio.sleep(0)
        return [left()]

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(work()) == [None]
    finally:
        gc.enable()
