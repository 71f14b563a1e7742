"""A head that two readers could read two ways is refused, and the connection closed, however it comes."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from palyra.daemon.plain import read_plain_head
from palyra.daemon.strict_heads import find_fault
from palyra.daemon.wire_guard import make_protocol
from tests.promises import promise

pytestmark = promise("daemon.ambiguous-heads")

GOOD = b"POST /v1/calls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
WRONG = {
    "two credentials": GOOD.replace(b"Content-L", b"authorization: Bearer b\r\nContent-L"),
    "two credentials, one of them empty": GOOD.replace(b"Content-L", b"AUTHORIZATION:\r\nContent-L"),
    "a folded header": GOOD.replace(b"Bearer a", b"Bearer\r\n a"),
    "a header folded by a tab": GOOD.replace(b"Host: x", b"Host: x\r\n\ty"),
    "a bare LF": GOOD.replace(b"Host: x\r\n", b"Host: x\n"),
    "bare LFs alone": GOOD.replace(b"\r\n", b"\n"),
    "a bare LF behind the request line": GOOD.replace(b"1.1\r\n", b"1.1\n"),
    "a bare LF at the end": GOOD.replace(b"\r\n\r\n", b"\r\n\n"),
    "a bare CR": GOOD.replace(b"Bearer a", b"Bearer\ra"),
    "two lengths that differ": GOOD.replace(b"Content-L", b"Content-Length: 3\r\nContent-L"),
    "two lengths that agree": GOOD.replace(b"Content-L", b"Content-Length: 2\r\nContent-L"),
    "a length beside an encoding": CHUNKED.replace(b"Transfer", b"Content-Length: 2\r\nTransfer"),
    "an encoding beside a length": CHUNKED.replace(b"chunked", b"chunked\r\nContent-Length: 2"),
    "a bare LF in trailers": CHUNKED.replace(b"0\r\n\r\n", b"0\r\nX: y\n\r\n"),
    "two lengths in one header": GOOD.replace(b"Length: 2", b"Length: 2, 2"),
    "an encoding in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "an encoding in HTTP/1.0 that goes on": CHUNKED.replace(b"1.1\r\n", b"1.0\r\nConnection: keep-alive\r\n"),
    "a bare CR in a chunk's extension": CHUNKED.partition(b"{}")[0].replace(b"2\r\n", b"2;a\rb\r\n"),
    "two hosts": GOOD.replace(b"Content-L", b"Host: y\r\nContent-L"),
}


async def ask(*pieces: bytes, family: int, folder: str) -> bytes:
    """All that is answered until the daemon closes the connection; the application answers `EXECUTED`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await Response("EXECUTED")(scope, receive, send)

    config = Config(app, lifespan="off", log_config=None, access_log=False)
    config.load()
    made = make_protocol(header_timeout_s=30.0, max_connections=100, max_header_bytes=32_768)
    state, loop = ServerState(), asyncio.get_running_loop()

    def protocol() -> asyncio.Protocol:
        return made(config=config, server_state=state, app_state={})

    if family == socket.AF_UNIX:
        server = await loop.create_unix_server(protocol, f"{folder}/s")
        reader, writer = await asyncio.open_unix_connection(f"{folder}/s")
    else:
        server = await loop.create_server(protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()
        server.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
@pytest.mark.parametrize("what", WRONG)
def test_a_head_that_can_be_read_two_ways_is_refused_and_the_connection_closed(what, family, tmp_path):
    answer = asyncio.run(ask(WRONG[what], GOOD, family=family, folder=str(tmp_path)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"MALFORMED" in answer
    assert b"EXECUTED" not in answer


@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_behind_a_good_request_and_byte_by_byte_too(what, tmp_path):
    behind = asyncio.run(ask(GOOD + WRONG[what] + GOOD, family=socket.AF_INET, folder=str(tmp_path)))
    assert behind.count(b"EXECUTED") == 1
    assert behind.count(b"HTTP/1.1 400 ") == 1
    end = re.search(rb"\r?\n\r?\n", WRONG[what])
    assert end is not None
    wrong = WRONG[what] if "trailers" in what or "chunk" in what else WRONG[what][: end.end()]
    single = [wrong[at : at + 1] for at in range(len(wrong))]
    assert asyncio.run(ask(*single, family=socket.AF_INET, folder=str(tmp_path))).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("request_bytes", [GOOD, CHUNKED, GOOD.replace(b"Host: x", b"Host:  x")])
def test_one_that_reads_one_way_is_answered(request_bytes, tmp_path):
    last = GOOD.replace(b"Content-L", b"Connection: close\r\nContent-L")
    answer = asyncio.run(ask(request_bytes + last, family=socket.AF_INET, folder=str(tmp_path)))
    assert answer.count(b"EXECUTED") == 2


def test_no_head_with_a_fault_is_plain():
    assert find_fault(GOOD[:-2]) is None
    for wrong in WRONG.values():
        assert read_plain_head(wrong) is None
