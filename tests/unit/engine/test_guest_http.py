"""A guest's request over real sockets on loopback: the granted place alone, and no redirect away from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from palyra.egress.dial import Dialer
from palyra.egress.fetch import HttpFetcher
from palyra.engine.guest_http import read_request, write_answer
from palyra.model.fetch import Fetched, FetchFailed

Answering = Callable[[int], bytes]


async def fetch(
    answering: Answering, path: str = "/", *, granted: str = "http://127.0.0.1:{}"
) -> tuple[Fetched, list[bytes]]:
    """One request of a guest's to a server of ours; also what the server was sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answering(port))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        order = read_request(granted.format(port), orjson.dumps({"path": path}), left_s=5.0)
        return await HttpFetcher(Dialer()).fetch(order, lambda url: ()), heard
    finally:
        server.close()


def run(work: Awaitable[tuple[Fetched, list[bytes]]]) -> tuple[Fetched, list[bytes]]:
    async def all_of_it() -> tuple[Fetched, list[bytes]]:
        return await work

    return asyncio.run(all_of_it())


def plain(port: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nhi"


def redirect(location: str) -> Answering:
    return lambda port: f"HTTP/1.1 302 Found\r\nLocation: {location.format(port)}\r\nContent-Length: 0\r\n\r\n".encode()


def test_the_granted_place_answers_in_json() -> None:
    fetched, heard = run(fetch(plain, "/x?y=1"))
    assert orjson.loads(write_answer(fetched)) == {
        "status": 200,
        "headers": [["content-type", "text/plain"], ["content-length", "2"]],
        "body": "hi",
    }
    assert heard[0].startswith(b"GET /x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"accept-encoding: identity" in heard[0]


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:1/", "http://127.0.0.2:{}/", "http://localhost:{}/", "http://169.254.169.254/", "//[::1]:{}/"],
)
def test_a_redirect_to_another_port_or_a_private_address_is_refused(location: str) -> None:
    with pytest.raises(FetchFailed) as failed:
        run(fetch(redirect(location)))
    assert failed.value.code == "EGRESS_DENIED"


def test_redirects_on_the_granted_place_itself_end_too() -> None:
    with pytest.raises(FetchFailed) as failed:
        run(fetch(redirect("/again")))
    assert failed.value.code == "TOO_MANY_REDIRECTS"


def test_a_granted_name_that_leads_to_loopback_is_refused() -> None:
    with pytest.raises(FetchFailed) as failed:
        run(fetch(plain, granted="http://localhost:{}"))
    assert failed.value.code == "EGRESS_DENIED"
