"""The transport half of palyra.http.fetch: resolve once, judge, pin, connect, send, read; every hop anew. A hand.

Rules: a host is judged before it is looked up, every address of its answer before one is dialled, and what is dialled
is an address; TLS is verified against the host that was granted. A redirect is a new request that is judged like the
first; it never goes from https to http, never re-sends a body to another host, and carries no credential away from the
host the call named. Time bounds all of it together, size each answer. Bytes of the body are not looked into here.

Not here: rules (egress/rules), framing (egress/fetch_answer), what the bytes mean (inside/page).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from palyra.egress.fetch_answer import Answer, BadAnswer
from palyra.egress.fetch_url import join_url
from palyra.egress.rules import judge_answer, judge_host
from palyra.errors import Rejected
from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchFailed, FetchOrder, FetchUrl, Hop
from palyra.model.outcome import Connection

Address = IPv4Address | IPv6Address
Credentials = Callable[[FetchUrl], Sequence[Credential]]
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAX_ADDRESSES = 3
_CHUNK_BYTES = 64 * 1024
_BODY_FIELDS = frozenset({"content-type", "content-encoding", "content-language"})


class Dialing(Protocol):
    """Names to addresses, and addresses to connected sockets. OSError for whatever fails."""

    async def resolve(self, host: str) -> tuple[Address, ...]: ...
    async def connect(self, address: Address, port: int) -> socket.socket: ...


class HttpFetcher:
    """`tls` makes the context that servers are verified with: the system's authorities, unless told otherwise."""

    def __init__(self, dialing: Dialing, *, tls: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._dialing = dialing
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None

    async def fetch(self, order: FetchOrder, credentials: Credentials) -> Fetched:
        """Raises FetchFailed. Cancelling it closes the connection."""
        trip = _Trip(order)
        try:
            async with asyncio.timeout(order.timeout_ms / 1000):
                return await self._follow(order, credentials, trip)
        except TimeoutError:
            raise trip.failed("TIMEOUT", f"There was no complete answer within {order.timeout_ms} ms.") from None

    async def _follow(self, order: FetchOrder, credentials: Credentials, trip: _Trip) -> Fetched:
        while True:
            trip.left = trip.left or order.url.origin != trip.origin
            secrets = () if trip.left else credentials(order.url)
            answer = await self._exchange(order, secrets, trip)
            location = next((value for name, value in answer.fields if name == "location"), None)
            if answer.status not in REDIRECTS or location is None or not order.max_redirects:
                return Fetched(
                    status=answer.status,
                    url=str(order.url),
                    headers=answer.fields,
                    body=answer.body,
                    truncated=answer.truncated,
                    redirects=tuple(trip.redirects),
                    connections=tuple(trip.connections),
                )
            trip.redirects.append(Hop(str(order.url), answer.status))
            if len(trip.redirects) > order.max_redirects:
                raise trip.failed("TOO_MANY_REDIRECTS", f"There are more than {order.max_redirects} redirects.")
            order = self._redirected(order, answer.status, location, trip)

    def _redirected(self, order: FetchOrder, status: int, location: str, trip: _Trip) -> FetchOrder:
        try:
            target = join_url(order.url, location)
        except Rejected as error:
            raise trip.failed("BAD_REDIRECT", f"The redirect leads nowhere: {error.detail}") from None
        if order.url.encrypted and not target.encrypted:
            raise trip.failed("BAD_REDIRECT", "The redirect leads from https to http, which is not followed.")
        order = replace(order, url=target)
        if status in (307, 308):
            if order.method == "POST" and target.origin != trip.origin:
                raise trip.failed("BAD_REDIRECT", "The redirect would send the body to another host.")
            return order
        if order.method == "POST":
            kept = tuple((name, value) for name, value in order.headers if name.lower() not in _BODY_FIELDS)
            return replace(order, method="GET", body=b"", headers=kept)
        return order

    async def _exchange(self, order: FetchOrder, secrets: Sequence[Credential], trip: _Trip) -> Answer:
        url = order.url
        connected = await self._connect(order, trip)
        record = trip.begin(url)
        reader, writer = await self._open(url, connected, trip)
        answer = Answer(method=order.method, max_bytes=order.max_bytes)
        try:
            request = compose(order, secrets)
            writer.write(request)
            await writer.drain()
            trip.count(record, up=len(request))
            while not answer.done:
                data = await reader.read(_CHUNK_BYTES)
                trip.count(record, down=len(data))
                if data:
                    answer.feed(data)
                else:
                    answer.close()
        except BadAnswer as error:
            raise trip.failed("BAD_ANSWER", f"{url.host} does not answer in valid HTTP: {error}.") from None
        except (OSError, EOFError):
            raise trip.failed("CONNECTION_LOST", f"The connection to {url.host} broke.") from None
        finally:
            writer.transport.abort()  # not a polite goodbye, for which a server could let us wait
        return answer

    async def _connect(self, order: FetchOrder, trip: _Trip) -> socket.socket:
        url, net = order.url, order.net
        verdict = judge_host(net, url.host, url.port)
        if not verdict.allowed:
            raise trip.denied(url, f"{verdict.why}.")
        try:
            addresses = await self._dialing.resolve(url.host)
        except OSError:
            raise trip.failed("LOOKUP_FAILED", f"{url.host} could not be looked up.") from None
        verdict = judge_answer(net, addresses, url.port, name=url.host)
        if not verdict.allowed:
            raise trip.denied(url, f"{verdict.why}.")
        for address in addresses[:MAX_ADDRESSES]:
            with suppress(OSError):
                return await self._dialing.connect(address, url.port)
        raise trip.failed("CONNECT_FAILED", f"{url.host} does not take connections on port {url.port}.")

    async def _open(
        self, url: FetchUrl, connected: socket.socket, trip: _Trip
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            if not url.encrypted:
                return await asyncio.open_connection(sock=connected)
            self._tls = self._tls or self._make_tls()
            return await asyncio.open_connection(sock=connected, ssl=self._tls, server_hostname=url.host)
        except ssl.SSLCertVerificationError as error:
            connected.close()
            why = error.verify_message or "the certificate is not valid"
            raise trip.failed("TLS_FAILED", f"{url.host} could not be verified: {why}.") from None
        except (OSError, EOFError, ValueError):
            connected.close()
            raise trip.failed("TLS_FAILED", f"{url.host} does not speak TLS on port {url.port}.") from None
        except BaseException:
            connected.close()
            raise


class _Trip:
    """What has happened so far, for the outcome whichever way it ends."""

    def __init__(self, order: FetchOrder) -> None:
        self.origin = order.url.origin
        self.left = False
        """A redirect led elsewhere: from then on another host chooses where we go, so no credential goes along."""
        self.redirects: list[Hop] = []
        self.connections: list[Connection] = []

    def begin(self, url: FetchUrl) -> int:
        self.connections.append(Connection(host=url.host, port=url.port, verdict="allowed"))
        return len(self.connections) - 1

    def count(self, record: int, *, up: int = 0, down: int = 0) -> None:
        one = self.connections[record]
        self.connections[record] = replace(one, bytes_up=one.bytes_up + up, bytes_down=one.bytes_down + down)

    def denied(self, url: FetchUrl, why: str) -> FetchFailed:
        self.connections.append(Connection(host=url.host, port=url.port, verdict="denied"))
        return self.failed("EGRESS_DENIED", why[0].upper() + why[1:])

    def failed(self, code: str, detail: str) -> FetchFailed:
        return FetchFailed(code, detail, redirects=tuple(self.redirects), connections=tuple(self.connections))


def compose(order: FetchOrder, secrets: Sequence[Credential]) -> bytes:
    """The request's bytes. A credential takes the place of a field of the same name."""
    own = {one.header.lower() for one in secrets}
    lines = [f"{order.method} {order.url.path} HTTP/1.1", f"Host: {order.url.authority}"]
    given = {name.lower() for name, _ in order.headers}
    defaults = (("User-Agent", "palyra"), ("Accept", "*/*"), ("Accept-Encoding", "gzip"))
    lines += [f"{name}: {value}" for name, value in defaults if name.lower() not in given | own]
    lines += [f"{name}: {value}" for name, value in order.headers if name.lower() not in own]
    lines += ["Connection: close"]
    if order.method == "POST":
        lines.append(f"Content-Length: {len(order.body)}")
    head = "\r\n".join(lines).encode("ascii") + b"\r\n"
    for one in secrets:
        head += one.header.encode("ascii") + b": " + one.value + b"\r\n"
    return head + b"\r\n" + order.body
