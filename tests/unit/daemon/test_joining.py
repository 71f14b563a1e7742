"""Head and body of an answer are one packet; nothing else waits."""

from __future__ import annotations

import asyncio
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
