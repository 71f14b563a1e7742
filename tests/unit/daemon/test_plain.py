"""What is read without h11 is what h11 reads, and is answered as h11 answers it; everything else is h11's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from palyra.daemon import wire_guard
from palyra.daemon.plain import MAX_HEAD_BYTES, PlainHead, read_plain_head
from palyra.daemon.routes import HEADERS_SAID, WHOLE_BODY, Said
from palyra.daemon.wire_guard import make_protocol

PLAIN = b"POST /v1/calls HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 2\r\n\r\n{}"
NOT_QUITE = PLAIN.replace(b"Host: ", b"Host:  ")
"""The same to everybody, and spelled otherwise."""
STEPS = 30
END = b";"
"""Of every answer here."""


def said_by_h11(data: bytes) -> tuple[Any, bytes]:
    """(the request, its body) of a whole one with nothing behind it; an error of h11's otherwise."""
    connection, events = h11.Connection(h11.SERVER), []
    connection.receive_data(data)
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert event not in (h11.NEED_DATA, h11.PAUSED)
        events.append(event)
    assert connection.trailing_data == (b"", False)
    assert connection.our_state is h11.SEND_RESPONSE
    assert not connection.they_are_waiting_for_100_continue
    return events[0], b"".join(bytes(event.data) for event in events[1:])


def test_a_plain_request_is_read():
    assert read_plain_head(PLAIN) == PlainHead(
        PLAIN[:-2],
        "/v1/calls",
        ((b"host", b"127.0.0.1:1"), (b"content-length", b"2")),
        {"host": "127.0.0.1:1", "content-length": "2"},
        2,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"POST", b"post"),
        PLAIN.replace(b"1.1\r", b"1.0\r"),
        PLAIN.replace(b"/v1/calls", b"/v1/calls?x=1"),
        PLAIN.replace(b"/v1/calls", b"/v1/%63alls"),
        PLAIN.replace(b"/v1/calls", b"http://127.0.0.1/v1/calls"),
        PLAIN.replace(b"/v1/calls", b"*"),
        PLAIN.replace(b" HTTP", b"  HTTP"),
        PLAIN.replace(b"Host: 127.0.0.1:1\r\n", b""),
        PLAIN.replace(b"Host: ", b"Host: a\r\nHost: "),
        PLAIN.replace(b"Host: ", b"Host : "),
        PLAIN.replace(b"Host: ", b"Host:\t"),
        PLAIN.replace(b"Host: ", b"Host:"),
        PLAIN.replace(b"Host: ", b" Host: "),
        PLAIN.replace(b":1\r\n", b":1 \r\n"),
        PLAIN.replace(b":1\r\n", b":1\n"),
        PLAIN.replace(b":1\r\n", b":1\r"),
        PLAIN.replace(b":1\r\n", b":1\r\n folded\r\n"),
        PLAIN.replace(b":1\r\n", b":1\xff\r\n"),
        PLAIN.replace(b":1\r\n", b":1\0\r\n"),
        PLAIN.replace(b":1\r\n", b":1\r\nX: \r\n"),
        PLAIN.replace(b":1\r\n", b":1\r\nX_Y: a\r\n"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nContent-Length: 2"),
        PLAIN.replace(b"th: 2", b"th: 2\r\ncontent-length: 3"),
        PLAIN.replace(b"th: 2", b"th: 2, 2"),
        PLAIN.replace(b"th: 2", b"th: +2"),
        PLAIN.replace(b"th: 2", b"th: 0x2"),
        PLAIN.replace(b"th: 2", b"th: 2_0"),
        PLAIN.replace(b"Content-Length: 2\r\n", b""),
        PLAIN.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nTransfer-Encoding: chunked"),
        PLAIN.replace(b"th: 2", b"th: 2\r\ntransfer-ENCODING: identity"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nConnection: close"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nExpect: 100-continue"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nTE: trailers"),
        PLAIN.replace(b"th: 2", b"th: 2\r\nX: " + b"a" * MAX_HEAD_BYTES),
        PLAIN[:-4],
        b"\r\n" + PLAIN,
        b"",
    ],
)
def test_what_is_spelled_otherwise_is_not_plain(wrong: bytes):
    assert read_plain_head(wrong) is None


LINES = st.sampled_from(
    [
        *(b"Host: a", b"host: a:1", b"Content-Length: 2", b"content-length: 02", b"Content-Length: 3", b"X: a b"),
        *(b"Connection: keep-alive", b"Connection: Keep-Alive", b"connection: close", b"Transfer-Encoding: chunked"),
        *(b"Authorization: Bearer a_b", b"x:y", b" folded", b"X: a  b", b"X:\ta", b"Accept: */*", b"Cookie: a=b; c=d"),
        *(b"Expect: 100-continue", b"X: \x80", b"Content-Length: 1e1", b"X-\x00: a", b"Upgrade: h2c", b"Date: a, b c"),
    ]
)
HEADS = st.builds(
    lambda first, lines, end: b"\r\n".join([first, *lines]) + end,
    st.sampled_from([b"POST /v1/calls HTTP/1.1", b"POST / HTTP/1.1", b"POST /a?b HTTP/1.1", b"GET / HTTP/1.1"]),
    st.lists(LINES, max_size=6),
    st.sampled_from([b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n"]),
)


@given(HEADS, st.sampled_from([b"{}", b"[1]", b"", b"\r\n\r\n"]), st.binary(max_size=3), st.integers(0, 200))
def test_what_is_plain_is_what_h11_reads(head: bytes, body: bytes, put_in: bytes, at: int):
    for data in (head + body, head[:at] + put_in + head[at:] + body):
        found = read_plain_head(data)
        if found is None or len(data) != len(found.text) + found.body_bytes:
            continue
        request, read = said_by_h11(data)
        assert (request.method, request.target, request.http_version) == (b"POST", found.path.encode(), b"1.1")
        assert list(request.headers) == list(found.headers)
        assert read == data[len(found.text) :]
        for name, value in found.headers:
            assert found.heads[name.decode()] in [v.decode() for n, v in found.headers if n == name], value


# ── on a connection ──

App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = (await receive())["body"]
    await Said(b"said %s;" % body, status=202)(scope, receive, send)


class Line:
    """A client that says bytes and hears bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        await turn()

    async def hear(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(end), 10)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self._reader.read(), 10)

    async def ask(self, data: bytes = PLAIN) -> bytes:
        await self.say(data)
        return await self.hear(END)

    def hang_up(self) -> None:
        self._writer.close()


async def turn() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


@asynccontextmanager
async def served(app: App, **bounds: Any) -> AsyncIterator[tuple[Line, ServerState]]:
    config = Config(app, lifespan="off", log_config=None, access_log=False, server_header=False, date_header=False)
    config.load()
    given = {"header_timeout_s": 5.0, "max_connections": 10, "max_header_bytes": 32_768} | bounds
    made, state = make_protocol(**given), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: made(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    line = Line(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    try:
        yield line, state
    finally:
        line.hang_up()
        server.close()
        await turn()


def count_plain(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    begun: list[bytes] = []
    begin = wire_guard.GuardedProtocol._begin

    def counted(self: Any, data: bytes, head: PlainHead) -> None:
        begun.append(data)
        begin(self, data, head)

    monkeypatch.setattr(wire_guard.GuardedProtocol, "_begin", counted)
    return begun


def test_a_plain_request_is_answered_byte_by_byte_as_h11_answers_it(monkeypatch):
    begun = count_plain(monkeypatch)

    async def work() -> None:
        async with served(echo) as (line, state):
            answers = [await line.ask(one) for one in (PLAIN, NOT_QUITE, PLAIN, PLAIN, NOT_QUITE)]
            assert set(answers) == {answers[0]}
            head, _, body = answers[0].partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 202 Accepted\r\ncontent-length: 8\r\n")
            assert body == b"said {};"
            assert state.total_requests == 5

    asyncio.run(work())
    assert begun == [PLAIN] * 3


def test_the_application_is_told_the_same(monkeypatch):
    begun, scopes = count_plain(monkeypatch), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(dict(scope))
        await echo(scope, receive, send)

    async def work() -> None:
        async with served(app) as (line, _):
            await line.ask(PLAIN)
            await line.ask(NOT_QUITE)

    asyncio.run(work())
    plain, other = scopes
    assert plain.pop("palyra.heads") == {"host": "127.0.0.1:1", "content-length": "2"}
    assert plain.pop(WHOLE_BODY) == b"{}"
    assert plain == other
    assert len(begun) == 1


@pytest.mark.parametrize("together", [True, False])
def test_requests_that_come_before_the_answer_wait_for_their_turn(together):
    order: list[bytes] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        order.append(b"begin " + body)
        await turn()
        order.append(b"end " + body)
        await Said(body + END)(scope, receive, send)

    async def work() -> None:
        async with served(slow) as (line, _):
            requests = [PLAIN[:-2] + body for body in (b"{}", b"[]", b"()")]
            for one in [b"".join(requests)] if together else requests:
                await line.say(one)
            assert [(await line.hear(END))[-3:] for _ in requests] == [b"{};", b"[];", b"();"]

    asyncio.run(work())
    assert order == [b"begin {}", b"end {}", b"begin []", b"end []", b"begin ()", b"end ()"]


def test_bytes_behind_a_request_are_not_read_without_end():
    """Whoever floods a connection while its request is under way is read no further."""
    done = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await done.wait()
        await Said(END)(scope, receive, send)

    async def work() -> None:
        async with served(slow) as (line, state):
            await line.say(PLAIN)
            line._writer.write(b"x" * (32 << 20))
            await asyncio.sleep(0.3)
            (protocol,) = state.connections
            assert 0 < len(protocol._early) <= 1 << 20  # type: ignore[union-attr]
            done.set()
            assert (await line.hear(END)).endswith(b"\r\n\r\n;")
            with suppress(ConnectionResetError):  # what was not read is dropped with the connection
                assert b" 400 " in await line.rest()

    asyncio.run(work())


@pytest.mark.parametrize("status", [202, 404])
def test_an_idle_connection_keeps_no_body(status):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        answer = Said(END, status=202) if status == 202 else Response(END, status_code=404)
        await answer(scope, receive, send)

    async def work() -> None:
        async with served(app) as (line, state):
            assert b" %d " % status in await line.ask(PLAIN.replace(b"th: 2", b"th: 40000") + b"x" * 39_998)
            await turn()
            (protocol,) = state.connections
            kept = [vars(protocol), vars(protocol.cycle), protocol.scope]  # type: ignore[union-attr]
            assert not [name for one in kept for name, value in one.items() if b"x" * 100 in _bytes(value)]

    asyncio.run(work())


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray) else b""


def streaming(*pieces: bytes) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def test_a_stream_is_handed_over_and_the_next_request_is_plain_again(monkeypatch):
    begun = count_plain(monkeypatch)

    async def work() -> None:
        async with served(streaming(b"one", b"two")) as (line, _):
            for _ in range(2):
                await line.say(PLAIN)
                heard = await line.hear(b"0\r\n\r\n")
                assert b"\r\ntransfer-encoding: chunked\r\n" in heard.lower()
                assert heard.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")

    asyncio.run(work())
    assert len(begun) == 2


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"2"), *HEADERS_SAID, (b"x", b"a\r\nset-cookie: stolen=1")],
        [(b"content-length", b"2"), (b"content-type", b"a\r\n\r\n<script>"), *HEADERS_SAID[1:]],
    ],
)
def test_a_header_that_would_split_the_answer_is_refused_as_ever(headers):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def work() -> list[bytes]:
        heard = []
        for request in (PLAIN, NOT_QUITE):
            async with served(app) as (line, _):
                await line.say(request)
                heard.append(await line.rest())
        return heard

    plain, other = asyncio.run(work())
    assert b"stolen" not in plain
    assert b"<script>" not in plain
    assert b"200 OK" not in plain + other


@pytest.mark.parametrize("lie", [b"1", b"3", b"2 ", b""])
def test_an_answer_of_another_length_than_it_says_is_not_plain(lie):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", lie), *HEADERS_SAID]})
        await send({"type": "http.response.body", "body": b"{}"})

    async def heard(request: bytes) -> bytes:
        async with served(app) as (line, _):
            await line.say(request)
            line._writer.write_eof()
            return await line.rest()

    assert asyncio.run(heard(PLAIN)) == asyncio.run(heard(NOT_QUITE))


def test_an_application_that_fails_says_so_and_the_connection_ends(caplog):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("of our own")

    async def heard(request: bytes) -> bytes:
        async with served(app) as (line, _):
            await line.say(request)
            return await line.rest()

    plain = asyncio.run(heard(PLAIN))
    assert plain.startswith(b"HTTP/1.1 500 ")
    assert plain == asyncio.run(heard(NOT_QUITE))
    assert "of our own" in caplog.text


def test_who_hangs_up_is_noticed_while_its_request_is_under_way():
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([await receive(), await receive()])
        await Said(b"{}")(scope, receive, send)

    async def work() -> None:
        async with served(app) as (line, state):
            await line.say(PLAIN)
            line.hang_up()
            for _ in range(100):
                await asyncio.sleep(0.01)
                if not state.connections and not state.tasks:
                    return

    asyncio.run(work())
    assert heard == [{"type": "http.request", "body": b"{}", "more_body": False}, {"type": "http.disconnect"}]


def test_a_daemon_that_ends_answers_what_is_under_way_and_then_closes():
    begun, done = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await done.wait()
        await echo(scope, receive, send)

    async def work() -> bytes:
        async with served(app) as (line, state):
            await line.say(PLAIN)
            await begun.wait()
            for protocol in list(state.connections):
                protocol.shutdown()
            done.set()
            return await line.rest()

    assert asyncio.run(work()).endswith(b"said {};")


def test_headers_that_take_too_long_behind_a_plain_request_are_refused():
    """The deadline of headers does not run while a plain request is under way, and runs again behind it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.3)
        await echo(scope, receive, send)

    async def work() -> None:
        async with served(app, header_timeout_s=0.1) as (line, _):
            assert b" 202 " in await line.ask()
            await line.say(b"POST /v1/calls HTT")
            assert b" 408 " in await line.rest()

    asyncio.run(work())


def test_a_head_past_the_configured_bound_is_not_plain(monkeypatch):
    begun = count_plain(monkeypatch)
    long = PLAIN.replace(b"Host: ", b"X: " + b"a" * 300 + b"\r\nHost: ")

    async def work() -> None:
        async with served(echo, max_header_bytes=256) as (line, _):
            assert b" 202 " in await line.ask()
            await line.say(long)
            assert b" 400 " in await line.rest()

    asyncio.run(work())
    assert begun == [PLAIN]


def test_the_head_of_a_quiet_stream_does_not_wait_for_its_first_event():
    """A client that gives up when no head comes would begin its call again."""
    done = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await done.wait()
        await send({"type": "http.response.body", "body": b"data: 1\n\n"})

    async def work() -> None:
        async with served(app) as (line, _):
            await line.say(PLAIN)
            assert (await line.hear(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
            done.set()
            assert (await line.hear(b"0\r\n\r\n")).endswith(b"data: 1\n\n\r\n0\r\n\r\n")

    asyncio.run(work())


def test_an_application_that_goes_on_behind_its_answer_holds_nobody_up(caplog):
    """h11 is not asked for a request that was forgotten: it would say for ever that there is none."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope, receive, send)
        await send({"type": "http.response.body", "body": b"more"})

    async def heard(request: bytes) -> bytes:
        async with served(app) as (line, _):
            answer = await line.ask(request)
            return answer + await line.rest()

    assert asyncio.run(heard(PLAIN)) == asyncio.run(heard(NOT_QUITE))
    assert [record.message for record in caplog.records] == ["Exception in ASGI application\n"] * 2
