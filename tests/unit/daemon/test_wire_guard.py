"""Who is at the other end of the Unix socket: the process that connected, and no other that has its number since."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import weakref
from typing import cast

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from palyra.daemon import wire_guard
from palyra.daemon.feed import Feed
from palyra.daemon.sse import stream_feed
from palyra.daemon.wire_guard import GuardedProtocol, make_protocol, peer_uid
from palyra.wiring import peers
from tests.promises import promise


class Transport:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> socket.socket:
        return self._sock


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


def connect_as_another(listener: socket.socket) -> socket.socket:
    """A line that a process opened which is gone."""
    line = socket.socket(socket.AF_UNIX)
    child = os.fork()
    if child == 0:
        line.connect(listener.getsockname())
        os._exit(0)
    os.waitpid(child, 0)
    return line


def test_the_owner_is_known_by_its_uid(listener):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert peer_uid(Transport(accepted)) == os.geteuid()


def test_who_connected_and_is_gone_is_nobody_whoever_has_its_number_now(listener, monkeypatch):
    depth = peers.depth_of
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(int.from_bytes(one.getsockopt(socket.SOL_SOCKET, peers.SO_PEERPIDFD, 4), sys.byteorder))
        except OSError:
            pytest.skip("this kernel gives no descriptor of who connected")
    with connect_as_another(listener), listener.accept()[0] as accepted:
        monkeypatch.setattr(
            peers, "depth_of", lambda place: depth("/proc/self/status" if place.endswith("/status") else place)
        )
        assert peer_uid(Transport(accepted)) is None


def test_on_an_older_kernel_the_number_has_to_do(listener, monkeypatch):
    monkeypatch.setattr(peers, "SO_PEERPIDFD", 9999)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(listener.getsockname())
        with listener.accept()[0] as accepted:
            assert peer_uid(Transport(accepted)) == os.geteuid()
    with connect_as_another(listener), listener.accept()[0] as accepted:
        assert peer_uid(Transport(accepted)) is None


def test_over_tcp_there_is_no_uid():
    with socket.socket() as line:
        assert peer_uid(Transport(line)) is None


ASK = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER_BYTES = 16 << 20


async def big(scope: Scope, receive: Receive, send: Send) -> None:
    size = ANSWER_BYTES if scope["path"] == "/big" else ANSWER_BYTES // 2
    await Response(b"x" * size)(scope, receive, send)


@promise("daemon.bounded-memory")
def test_answers_that_nobody_reads_do_not_take_all_of_the_memory(monkeypatch):
    """Each of thousands of connections could ask for megabytes and keep them, for as long as it liked."""
    monkeypatch.setattr(wire_guard, "STANDS_STILL_S", 0.02)

    async def story() -> None:
        config = Config(big, lifespan="off", log_config=None, access_log=False)
        config.load()
        made = make_protocol(header_timeout_s=5.0, max_connections=100, max_header_bytes=32_768)
        made.most_unread_bytes = 3 * ANSWER_BYTES
        state, loop = ServerState(), asyncio.get_running_loop()
        server = await loop.create_server(lambda: made(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
        lines = []
        for _ in range(12):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.setblocking(False)
            await loop.sock_connect(line, server.sockets[0].getsockname())
            await loop.sock_sendall(line, ASK)
            lines.append(line)
            await asyncio.sleep(0.05)
        waiting = sum(one.transport.get_write_buffer_size() for one in made.unread)
        assert 0 < waiting <= made.most_unread_bytes
        assert 0 < len(state.connections) < 6
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(ASK)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        assert await reader.readexactly(ANSWER_BYTES) == b"x" * ANSWER_BYTES, "who reads is served"
        writer.close()
        for line in lines:
            line.close()
        server.close()
        await asyncio.sleep(0.1)
        assert made.unread == {}

    asyncio.run(story())


@promise("daemon.bounded-memory")
def test_streams_that_nobody_reads_do_not_each_keep_a_calls_output(monkeypatch, tmp_path):
    """What a stream has not written yet is in no buffer of its connection, and lives as long as that."""
    monkeypatch.setattr(wire_guard, "STANDS_STILL_S", 0.02)
    feeds: list[weakref.ref[Feed]] = []

    async def follow(scope: Scope, receive: Receive, send: Send) -> None:
        feed = Feed()
        for _ in range(1024):
            feed.put("output", b"x" * 1000)
        feed.close()
        feeds.append(weakref.ref(feed))
        await stream_feed(feed)(scope, receive, send)

    def kept_bytes() -> int:
        return sum(feed.kept_bytes for ref in feeds if (feed := ref()) is not None)

    async def story() -> None:
        config = Config(follow, lifespan="off", log_config=None, access_log=False)
        config.load()
        made = make_protocol(header_timeout_s=5.0, max_connections=100, max_header_bytes=32_768)
        made.most_unread_bytes = 3 << 20
        state, loop = ServerState(), asyncio.get_running_loop()
        path = str(tmp_path / "daemon.sock")
        server = await loop.create_unix_server(lambda: made(config=config, server_state=state, app_state={}), path)
        lines = []
        for _ in range(12):
            line = socket.socket(socket.AF_UNIX)
            line.setblocking(False)
            await loop.sock_connect(line, path)
            await loop.sock_sendall(line, ASK)
            lines.append(line)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            while len(feeds) < 12 or kept_bytes() >= 8 << 20:  # twelve of them have twelve
                await asyncio.sleep(0.01)
        assert kept_bytes(), "those that there is room for stay"
        reader, writer = await asyncio.open_unix_connection(path, limit=2 << 20)
        writer.write(ASK)
        heard = await reader.readuntil(b"id: 1024\nevent: output\n")
        assert b"event: gap" not in heard, "who reads gets all of it"
        writer.close()
        for line in lines:
            line.close()
        server.close()
        await asyncio.sleep(0.1)
        assert made.unread == {}

    asyncio.run(story())


def _waiting_bytes(state: ServerState) -> int:
    """Behind the request that is under way."""
    lines = cast("set[GuardedProtocol]", state.connections)
    return sum(len(one.conn.trailing_data[0]) + len(one._early) for one in lines if state.tasks)


@pytest.mark.parametrize("ask", [ASK, b"POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"])
def test_of_what_comes_behind_a_request_under_way_little_waits(ask: bytes) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(60)

    async def story() -> None:
        config = Config(never, lifespan="off", log_config=None, access_log=False)
        config.load()
        made = make_protocol(header_timeout_s=5.0, max_connections=100, max_header_bytes=32_768)
        state, loop = ServerState(), asyncio.get_running_loop()
        server = await loop.create_server(lambda: made(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as line:
            line.setblocking(False)
            line.send(ask)
            for wait_s in (0.0, 0.05, 0.05):  # with it, and later
                with contextlib.suppress(BlockingIOError):
                    line.send(b"x" * (1 << 20))
                await asyncio.sleep(wait_s)
            async with asyncio.timeout(30):
                while not (most := _waiting_bytes(state)):
                    await asyncio.sleep(0.01)
            assert most <= wire_guard.READ_BYTES
            for task in state.tasks:
                task.cancel()
        server.close()
        await asyncio.sleep(0.05)

    asyncio.run(story())


def test_who_reads_slowly_is_not_cut_off_for_those_who_do_not_read_at_all(monkeypatch, tmp_path):
    """Its answer is the largest, and it has been behind for longer than anybody: but it goes on taking from it."""
    monkeypatch.setattr(wire_guard, "STANDS_STILL_S", 0.1)

    async def story() -> None:
        config = Config(big, lifespan="off", log_config=None, access_log=False)
        config.load()
        made = make_protocol(header_timeout_s=5.0, max_connections=100, max_header_bytes=32_768)
        made.most_unread_bytes = 2 * ANSWER_BYTES
        state, loop = ServerState(), asyncio.get_running_loop()
        path = str(tmp_path / "daemon.sock")
        server = await loop.create_unix_server(lambda: made(config=config, server_state=state, app_state={}), path)

        async def ask(what: bytes) -> socket.socket:
            line = socket.socket(socket.AF_UNIX)
            line.setblocking(False)
            await loop.sock_connect(line, path)
            await loop.sock_sendall(line, ASK.replace(b"/big", what))
            return line

        async def flood() -> list[socket.socket]:
            lines = []
            for _ in range(12):
                lines.append(await ask(b"/half"))
                await asyncio.sleep(0.1)
            return lines

        slow = await ask(b"/big")
        await asyncio.sleep(0.3)
        flooding, taken = asyncio.create_task(flood()), 0
        while taken < ANSWER_BYTES:
            data = await loop.sock_recv(slow, 1 << 16)
            assert data, f"cut off after {taken} bytes"
            taken += len(data)
            await asyncio.sleep(0 if flooding.done() else 0.01)
        assert len(state.connections) < 8, "those who never read went"
        for line in (slow, *await flooding):
            line.close()
        server.close()
        await asyncio.sleep(0.1)

    asyncio.run(story())
